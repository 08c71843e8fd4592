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

/// Means over the rows of each head. Undefined views are not computed.
///
/// Every tensor is [batch, q_heads] of any strides, float32 (float64 if the inputs are). The means
/// are taken over rows that see a key and have a non-negligible weight (next to a much larger sink,
/// all weights of a row may underflow). A head without such a row is NaN. A row with NaN or
/// infinity in its scores makes all numbers of its head NaN.
///
/// Query i is at position i + offset (AttentionOptions::alignment), from which RowStatistics
/// measures distances. At positions before the first and after the last key the weight is 0.
/// Weights are those before dropout; dropout is not supported. With a sink, the weights of a row
/// sum to 1 minus the sink's share.
struct HeadSummary {
  MutableTensorView entropy = {};  ///< RowStatistics::entropy, in nats
  /// The entropy of equal weights: ln(number of keys that the row sees). Without sinks, an upper
  /// bound of `entropy`.
  MutableTensorView even_entropy = {};
  MutableTensorView maximum = {};        ///< the largest weight
  MutableTensorView mean_distance = {};  ///< RowStatistics::mean_distance, in keys
  MutableTensorView first_key = {};      ///< the weight of key 0
  MutableTensorView previous_key = {};   ///< the weight of the key before the query's position
  MutableTensorView own_key = {};        ///< the weight of the key at the query's position
  MutableTensorView next_key = {};       ///< the weight of the key after the query's position
  /// The weight of all keys in the same block as the query's position. The keys are divided into
  /// `blocks` equal blocks: block b has the keys from floor(b kv_len / blocks) to before
  /// floor((b + 1) kv_len / blocks). With fewer keys than blocks, each key is a block.
  MutableTensorView block_diagonal = {};
  std::int64_t blocks = 16;  ///< 1 or more
};

/// A number of HeadSummary with its name, for loops over all of them (kHeadNumbers).
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

/// Summarises each head in one fused pass over its keys, and recomputes the weights near the
/// diagonal. The matrix is never stored. inputs.lse is ignored.
///
/// Memory   20 bytes for each query of each head; Execution::workspace is not used.
/// Cost     that of attention_forward without a context. The numbers on and near the diagonal add
///          1 / blocks of a product of queries and keys. even_entropy evaluates the mask for every
///          pair, unless each row's visible keys are a range.
/// Threads  the result is bit-identical for any number of threads.
/// Errors   throws InvalidArgument naming the argument, the expected and the actual value, before
///          anything is written; Stopped after Execution::stop.
FOVEA_API void attention_heads(const WeightInputs& inputs, const AttentionOptions& options,
                               const HeadSummary& summary);

}  // namespace fovea
