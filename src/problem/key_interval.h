// SPDX-License-Identifier: Apache-2.0
//
// Base of the mask rules for which every query sees a contiguous interval of keys: causal, window,
// prefix and key_lengths. A rule computes the interval; all other functions are derived from it.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "fovea/mask.h"

namespace fovea {

/// The keys in [begin, end), which may extend beyond the problem. The extremes of int64 mean
/// unbounded.
struct KeyInterval {
  static constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
  static constexpr std::int64_t kHighest = std::numeric_limits<std::int64_t>::max();

  std::int64_t begin = kLowest;
  std::int64_t end = kHighest;
};

/// CRTP base for a rule with a function `KeyInterval interval(const ScorePosition& row) const`. The
/// interval must either be the same for all queries, or be non-empty and move by one key from each
/// query to the next. classify() relies on this: intervals of adjacent queries overlap or touch.
template <class Rule>
struct IntervalRule {
  bool visible(const ScorePosition& at) const {
    const KeyInterval seen = self().interval(at);
    return seen.begin <= at.key && at.key < seen.end;
  }

  Visibility classify(const ScoreBlock& block) const {
    ScorePosition last_row = block.first;
    last_row.query += block.queries - 1;
    const KeyInterval first = self().interval(block.first);
    const KeyInterval last = self().interval(last_row);
    const std::int64_t begin = block.first.key;
    const std::int64_t end = begin + block.keys;
    // Keys in [first.begin, last.end) are visible to at least one query, and keys in
    // [last.begin, first.end) to all queries.
    if (end <= first.begin || last.end <= begin) return Visibility::kNone;
    return last.begin <= begin && end <= first.end ? Visibility::kAll : Visibility::kSome;
  }

  KeyRange key_range(const ScorePosition& first, std::int64_t count) const {
    const KeyInterval seen = self().interval(first);
    return {std::max(seen.begin, first.key), std::min(seen.end, first.key + count), true};
  }

  void fill(const ScorePosition& first, std::int64_t count, std::uint8_t* visible) const {
    const KeyInterval seen = self().interval(first);
    // Clamp before subtracting: with unbounded intervals the difference would overflow.
    const std::int64_t begin = std::clamp(seen.begin, first.key, first.key + count) - first.key;
    const std::int64_t end = std::clamp(seen.end, first.key, first.key + count) - first.key;
    std::memset(visible, 0, static_cast<std::size_t>(count));
    std::memset(visible + begin, 1, static_cast<std::size_t>(end - begin));
  }

  /// Returns the rule unchanged: positions are shifted by the alignment of the part.
  Rule part(const PartSpan&) const { return self(); }

 private:
  const Rule& self() const { return static_cast<const Rule&>(*this); }
};

}  // namespace fovea
