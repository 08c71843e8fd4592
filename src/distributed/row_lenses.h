// SPDX-License-Identifier: Apache-2.0
//
// Row statistics and top keys that are collected from the results for separate ranges of keys.

#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "fovea/attention_options.h"
#include "fovea/lens_buffers.h"
#include "fovea/lenses.h"
#include "fovea/tensor.h"

#include "problem/part.h"

namespace fovea::distributed {

/// The results of a block of queries on a range of keys.
struct BlockLenses {
  const TensorView& query;  ///< [batch, q_heads, queries, head_dim]
  const TensorView& key;    ///< [batch, kv_heads, keys, head_dim]
  const TensorView& lse;    ///< [batch, q_heads, queries]
  const AttentionOptions& options;
  const PairRange& range;
  std::int64_t first;  ///< the index of the first query in the part of this rank
};

/// The lenses of a rank's rows. Statistics of ranges of keys are weighted by the exponentials of
/// their lse, in float64. The largest weights of all ranges are ordered by their scores, computed
/// again in float64, so that equal scores are found to be equal.
class RowLenses {
 public:
  /// `lenses` may have a map, which is ignored. `rows` is [batch, q_heads, queries].
  RowLenses(const Lenses& lenses, const Shape& rows, std::int64_t head_dim);

  /// Returns whether there is anything to collect.
  bool any() const { return statistics_ || top_ > 0; }
  /// The results of a block.
  struct Results : LensBuffers {
    Tensor mean_offset;

    /// Returns views of the tensors, for attention_forward to write to.
    Lenses lenses();
  };
  /// Returns tensors for what must be computed for a block of queries and keys.
  Results results_for(ProblemShape block, DType type) const;
  /// Adds the results of a block.
  void add(const BlockLenses& block, const Results& results);
  /// Writes the outputs. Each entry of `sinks`, one per head or none, is a logit without a key.
  void finish(const std::vector<double>& sinks);

 private:
  static constexpr double kEmpty = -std::numeric_limits<double>::infinity();
  struct Row {
    double lse = kEmpty;  // of the keys so far
    double entropy = 0.0, variance = 0.0, first_key = 0.0;
    double mean_key = 0.0;
    double position = 0.0;  // of the query among the keys
    bool spoilt = false;    // by NaN or +infinity
  };
  struct Top {
    double score = kEmpty;
    std::int64_t key = -1;
  };

  std::size_t row_number(const Index& at) const {
    return static_cast<std::size_t>((at[0] * rows_[1] + at[1]) * rows_[2] + at[2]);
  }
  void add_row(const BlockLenses& block, const Results& results, const ScorePosition& place);
  void insert(std::size_t row, const Top& candidate);
  void finish_row(const Index& at, double sink);

  const Lenses& lenses_;
  const Shape rows_;
  const std::int64_t head_dim_;
  bool statistics_ = false;
  std::int64_t wanted_top_ = 0;
  std::int64_t top_ = 0;  // kept for each row: those wanted, and one for the maximum
  std::vector<Row> seen_;
  std::vector<Top> tops_;
};

}  // namespace fovea::distributed
