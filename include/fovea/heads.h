// SPDX-License-Identifier: Apache-2.0
//
// What a head is like, in a few numbers: those that tell one which looks at the token before, at
// the first key, or everywhere alike from the others.

#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/tensor.h"
#include "fovea/weights.h"

namespace fovea {

/// Means over the rows of each head; what is absent is not asked for.
///
/// Every tensor is [batch, q_heads] of any strides, float32 (float64 where the inputs are). Means
/// are over the rows that see a key, and give one a weight that is not too small to be told from 0,
/// as all are beside a sink far above them; of a head without such a row all are nan. A row with a
/// nan or inf among its scores makes all numbers of its head nan.
///
/// Query i stands at position i + offset (AttentionOptions::alignment), from which RowStatistics
/// count their distances. Where there is no key, before the first and after the last, the weight is
/// 0. Weights are those before dropout, which must be none; with a sink those of a row add up to 1
/// less the sink's share.
struct HeadSummary {
  MutableTensorView entropy = {};  ///< of RowStatistics::entropy, in nats
  /// The entropy of equal weights: of ln(the number of keys that the mask lets the row see). Where
  /// there are no sinks, `entropy` is at most this.
  MutableTensorView even_entropy = {};
  MutableTensorView maximum = {};        ///< of the largest weight
  MutableTensorView mean_distance = {};  ///< of RowStatistics::mean_distance, in keys
  MutableTensorView first_key = {};      ///< of the weight of key 0
  MutableTensorView previous_key = {};   ///< of the key before the query's position
  MutableTensorView own_key = {};        ///< of the key at it
  MutableTensorView next_key = {};       ///< of the key after it
  /// Of the weights of all keys in the block that the query's position is in, of so many equal
  /// blocks of keys: block b has those from floor(b kv_len / blocks) to before floor((b + 1) kv_len
  /// / blocks). Where there are fewer keys, each is a block.
  MutableTensorView block_diagonal = {};
  std::int64_t blocks = 16;  ///< 1 or more
};

/// The numbers of HeadSummary by name, in its order, for those who go through all of them.
struct HeadNumber {
  std::string_view name;
  MutableTensorView HeadSummary::*output;
};
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

/// Sums up heads, each by one fused pass over its keys and a second look at the weights near the
/// diagonal: the matrix is never stored. inputs.lse is not looked at.
///
/// Memory   20 bytes for each query of each head; Execution::workspace is not used.
/// Cost     that of attention_forward without a context, and, where it is asked for, what the
///          diagonal and its blocks cost, 1 / blocks of a product of queries and keys. For
///          even_entropy a mask that is no range of keys for each row is asked about every pair.
/// Threads  the same bits for any number of threads.
/// Errors   throws InvalidArgument naming the argument, what was expected and what came, before
///          anything is written; Stopped after Execution::stop.
FOVEA_API void attention_heads(const WeightInputs& inputs, const AttentionOptions& options,
                               const HeadSummary& summary);

}  // namespace fovea
