// SPDX-License-Identifier: Apache-2.0
//
// Summaries of attention heads: a few numbers per head that distinguish, for example, heads that
// attend to the previous token, to the first key, or uniformly.

#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/tensor.h"
#include "fovea/weights.h"

namespace fovea {

/// Means over the rows of each head. Undefined views are skipped.
///
/// Every tensor is [batch, q_heads] with any strides, float32 (float64 for float64 inputs). The
/// means include only rows with at least one non-negligible weight. Rows that see no key are
/// excluded, and so are rows whose weights all underflow to 0 because a sink is far larger. If no
/// row of a head is included, all statistics of the head are NaN. They are also NaN if any visible
/// score of the head is NaN or +infinity.
///
/// Query i is at position i + offset (AttentionOptions::alignment), as in RowStatistics. A position
/// outside 0 .. kv_len - 1 has weight 0. Weights are those before dropout; calls with dropout are
/// rejected. With a sink, the weights of a row sum to 1 minus the sink's share.
struct HeadSummary {
  MutableTensorView entropy = {};  ///< mean of RowStatistics::entropy, in nats
  /// Mean of ln(number of keys of the row that neither the mask nor a bias of -inf hides), the
  /// entropy of uniform weights. An upper bound on `entropy` if there are no sinks.
  MutableTensorView even_entropy = {};
  MutableTensorView maximum = {};        ///< mean of the largest weight
  MutableTensorView mean_distance = {};  ///< mean of RowStatistics::mean_distance, in keys
  MutableTensorView first_key = {};      ///< mean weight of key 0
  MutableTensorView previous_key = {};   ///< mean weight of the key before the query's position
  MutableTensorView own_key = {};        ///< mean weight of the key at the query's position
  MutableTensorView next_key = {};       ///< mean weight of the key after the query's position
  /// Mean total weight of the keys in the same block as the query's position. Keys are divided into
  /// `blocks` blocks of nearly equal size: block b has the keys in the half-open range
  /// [floor(b kv_len / blocks), floor((b + 1) kv_len / blocks)). If kv_len < blocks, each key is a
  /// block.
  MutableTensorView block_diagonal = {};
  std::int64_t blocks = 16;  ///< 1 or more
};

/// The name of a statistic and the corresponding member of HeadSummary.
struct HeadNumber {
  std::string_view name;
  MutableTensorView HeadSummary::*output;
};
/// All statistics of HeadSummary in order, for iteration.
inline constexpr std::array<HeadNumber, 9> kHeadNumbers{
    {{"entropy", &HeadSummary::entropy},
     {"even_entropy", &HeadSummary::even_entropy},
     {"maximum", &HeadSummary::maximum},
     {"mean_distance", &HeadSummary::mean_distance},
     {"first_key", &HeadSummary::first_key},
     {"previous_key", &HeadSummary::previous_key},
     {"own_key", &HeadSummary::own_key},
     {"next_key", &HeadSummary::next_key},
     {"block_diagonal", &HeadSummary::block_diagonal}}};

/// Computes summary statistics of all heads in one fused pass over the keys, and recomputes the
/// weights near the diagonal. The weight matrix is never stored. inputs.lse is ignored.
///
/// Memory   20 bytes per query and head; Execution::workspace is not used.
/// Cost     that of attention_forward without a context. If requested, the weights on and near the
///          diagonal add 1 / `blocks` of the cost of one product of queries and keys.
///          even_entropy evaluates the mask for every pair, unless each row sees a contiguous range
///          of keys.
/// Threads  bit-identical for any number of threads.
/// Errors   throws InvalidArgument naming the argument, the expected and the actual value, before
///          anything is written; Stopped after Execution::stop.
FOVEA_API void attention_heads(const WeightInputs& inputs, const AttentionOptions& options,
                               const HeadSummary& summary);

}  // namespace fovea
