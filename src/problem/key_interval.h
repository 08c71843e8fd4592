// SPDX-License-Identifier: Apache-2.0
//
// The rules by which a query sees one unbroken run of keys: causal, window, prefix, key_lengths.
// Each says the run; what it lets be seen of a key, a row or a block follows from that.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "fovea/mask.h"

namespace fovea {

/// Keys from `begin` to before `end`, which may lie outside the problem; the extremes of int64 are
/// unbounded.
struct KeyInterval {
  static constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
  static constexpr std::int64_t kHighest = std::numeric_limits<std::int64_t>::max();

  std::int64_t begin = kLowest;
  std::int64_t end = kHighest;
};

/// Answers for a rule that has `KeyInterval interval(const ScorePosition& row) const`. The interval
/// either is the same for all queries or moves by one key from each to the next and is not empty,
/// so that the intervals of neighbours overlap or touch; classify() depends on it.
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
    // Some query sees the keys from first.begin to last.end, all see those from last.begin to
    // first.end.
    if (end <= first.begin || last.end <= begin) return Visibility::kNone;
    return last.begin <= begin && end <= first.end ? Visibility::kAll : Visibility::kSome;
  }

  KeyRange key_range(const ScorePosition& row, std::int64_t kv_len) const {
    const KeyInterval seen = self().interval(row);
    return {std::max<std::int64_t>(seen.begin, 0), std::min(seen.end, kv_len), true};
  }

  void fill(const ScorePosition& first, std::int64_t count, std::uint8_t* visible) const {
    const KeyInterval seen = self().interval(first);
    // Clamped before subtracting, as the extremes are far away.
    const std::int64_t begin = std::clamp(seen.begin, first.key, first.key + count) - first.key;
    const std::int64_t end = std::clamp(seen.end, first.key, first.key + count) - first.key;
    std::memset(visible, 0, static_cast<std::size_t>(count));
    std::memset(visible + begin, 1, static_cast<std::size_t>(end - begin));
  }

  /// Positions are shifted by the alignment, which a part has of its own.
  Rule part(const PartSpan&) const { return self(); }

 private:
  const Rule& self() const { return static_cast<const Rule&>(*this); }
};

}  // namespace fovea
