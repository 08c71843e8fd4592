// SPDX-License-Identifier: Apache-2.0
//
// Sums of head statistics (fovea/heads.h) over some queries of a head, and over some of their keys.

#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "fovea/heads.h"

#include "engine/lenses/lenses.h"
#include "engine/weights/head_names.h"
#include "engine/weights/weights_call.h"
#include "reference/lenses.h"

namespace fovea::engine {

/// Throws InvalidArgument if an output or the number of blocks is invalid.
void check_summary(const Problem& problem, const HeadSummary& summary);

/// Sums over some rows of a head.
struct HeadSums {
  std::array<double, kHeadNumbers.size()> of{};
  std::int64_t rows = 0;  // counted rows: those with a weight above 0
  bool spoilt = false;    // whether any row is NaN

  /// Adds the statistics of one row. Returns whether the row is counted.
  bool add(const reference::RowNumbers& row) {
    spoilt = spoilt || std::isnan(row.entropy);
    if (std::isnan(row.entropy) || !(row.maximum > 0.0)) return false;
    ++rows;
    of[kEntropy] += row.entropy;
    of[kMaximum] += row.maximum;
    of[kMeanDistance] += row.mean_distance;
    of[kFirstKey] += row.first_key;
    return true;
  }

  void add(const HeadSums& more) {
    for (std::size_t i = 0; i < of.size(); ++i) of[i] += more.of[i];
    rows += more.rows;
    spoilt = spoilt || more.spoilt;
  }

  /// Writes the means of a head.
  void write(const HeadSummary& summary, std::int64_t batch, std::int64_t head) const {
    for (std::size_t i = 0; i < of.size(); ++i) {
      const MutableTensorView& output = summary.*kHeadNumbers[i].output;
      if (output.defined()) set_value(output, {batch, head}, mean(i));
    }
  }

 private:
  double mean(std::size_t number) const {
    if (spoilt || rows == 0) return std::numeric_limits<double>::quiet_NaN();
    return of[number] / static_cast<double>(rows);
  }
};

/// Some consecutive queries of a head.
struct QueryChunk {
  ScorePosition origin;  // of query 0
  std::int64_t begin = 0, end = 0;
};

/// Computes the entropy of equal weights: the logarithm of a row's number of visible keys.
class EvenEntropy {
 public:
  /// The options must outlive this object.
  EvenEntropy(const AttentionOptions& options, std::int64_t kv_len, const HeadSummary& summary)
      : pairs_seen_(options), ends_{0, kv_len}, wanted_(summary.even_entropy.defined()) {}

  double operator()(const ScorePosition& row) {
    if (!wanted_) return 0.0;
    std::int64_t keys = 0;
    count_row(pairs_seen_, row, ends_[1], ends_, std::span(&keys, 1), visible_);
    return std::log(static_cast<double>(keys));
  }

 private:
  const VisiblePairs pairs_seen_;
  std::array<std::int64_t, 2> ends_;
  bool wanted_;
  std::vector<std::uint8_t> visible_;
};

/// Recomputes the weights of a chunk along the diagonal. The keys of the call may be a part of the
/// problem's: those from `first_key` on, of `kv_len`.
class Diagonal {
 public:
  Diagonal(const WeightsCall& call, const QueryChunk& chunk, std::int64_t keys, std::byte* scratch)
      : Diagonal(call, chunk, keys, scratch, 0, keys) {}
  Diagonal(const WeightsCall& call, const QueryChunk& chunk, std::int64_t keys, std::byte* scratch,
           std::int64_t first_key, std::int64_t kv_len);

  /// Adds the weights of the previous, own and next keys.
  void add_neighbours(HeadSums& sums);
  /// Adds the weights of the diagonal blocks. A diagonal block contains all keys of a range of
  /// positions, and the chunk's queries at these positions.
  void add_blocks(std::int64_t blocks, HeadSums& sums);

 private:
  const WeightsCall& call_;
  const QueryChunk& chunk_;
  std::int64_t keys_;
  std::byte* scratch_;
  std::int64_t first_key_, kv_len_;
  kernels::WeightsItem item_;
};

/// Returns the number of diagonal blocks.
inline std::int64_t blocks_of(const HeadSummary& summary, std::int64_t kv_len) {
  return std::min(summary.blocks, kv_len);
}

}  // namespace fovea::engine
