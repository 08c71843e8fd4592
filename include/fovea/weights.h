// SPDX-License-Identifier: Apache-2.0
//
// Weights found again after a fused pass that did not keep them: any rectangle of the matrix, at a
// cost that depends on the rectangle alone, and what each key received from all queries.

#pragma once

#include <cstdint>
#include <optional>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/lenses.h"
#include "fovea/tensor.h"

namespace fovea {

/// The inputs of attention_forward, and the lse it gave for them with the same options. Types and
/// strides as there, with which packed sequences and dropout do not go here.
struct WeightInputs {
  TensorView query;     ///< [batch, q_heads,  q_len,  head_dim]
  TensorView key;       ///< [batch, kv_heads, kv_len, head_dim]
  TensorView lse = {};  ///< [batch, q_heads, q_len], any strides
};

/// Some neighbouring queries and keys of one head.
struct WeightTile {
  std::int64_t batch = 0;
  std::int64_t head = 0;  ///< of the queries
  std::int64_t first_query = 0, queries = 0;
  std::int64_t first_key = 0, keys = 0;
};

/// The weights of a rectangle, exp(score - lse); 0 where the mask hides the key.
///
/// weights  [queries, keys]  float32 (float64 where the inputs are), last dimension contiguous
///
/// Numerics a part of a larger rectangle has the same bits. Rows of a whole matrix add up to 1,
/// less
///          a sink's share, but for the rounding of lse.
/// Cost     2 * queries * keys * head_dim flop.
/// Errors   throws InvalidArgument naming the argument, what was expected and what came; Stopped
///          after Execution::stop.
FOVEA_API void attention_weights(const WeightInputs& inputs, const WeightTile& tile,
                                 const AttentionOptions& options, const MutableTensorView& weights);

/// The scores of a rectangle, as they enter the softmax: with scale, softcap, custom function and
/// biases; -inf where the mask hides the key. inputs.lse is not looked at. All else as there.
FOVEA_API void attention_scores(const WeightInputs& inputs, const WeightTile& tile,
                                const AttentionOptions& options, const MutableTensorView& scores);

/// The weights of a rectangle, pooled to map.cells and counted in map.pairs, which are [R, C] with
/// 1 <= R <= queries and 1 <= C <= keys; cells lie as those of PooledMap. All else as there.
FOVEA_API void attention_weights(const WeightInputs& inputs, const WeightTile& tile,
                                 const AttentionOptions& options, const PooledMap& map);

/// One query of one head, or of all of them.
struct WeightRow {
  std::int64_t batch = 0;
  std::optional<std::int64_t> head = {};  ///< of the queries; all where absent
  std::int64_t query = 0;
};

/// The weights of one query with all keys, at the speed of memory: heads that share keys read them
/// once. Few queries of a long cache are found so in a small part of the time of a rectangle, from
/// which they differ by rounding.
///
/// weights  [kv_len], or [q_heads, kv_len] of all heads; otherwise as those of a rectangle
///
/// Cost     kv_len * head_dim numbers read per head of keys.
/// Threads  the same bits for any number of them. Errors as attention_weights().
FOVEA_API void attention_row(const WeightInputs& inputs, const WeightRow& row,
                             const AttentionOptions& options, const MutableTensorView& weights);

/// What each key received; what is absent is not asked for.
struct ReceivedAttention {
  // [batch, q_heads, kv_len], float32 (float64 where the inputs are), last dimension contiguous.
  MutableTensorView sum = {};      ///< of its weights, over all queries
  MutableTensorView largest = {};  ///< of them
  /// The sum over the last `recent_queries`, as methods that drop keys from a cache have it (Li et
  /// al. 2024, SnapKV).
  MutableTensorView recent = {};
  std::int64_t recent_queries = 0;
  /// [batch, q_heads, bins], int64, last dimension contiguous, 1 to kMaxWeightBins: how many
  /// visible weights there are of which size. Bin b counts 2^-(b + 1) < w <= 2^-b, the last one all
  /// that are smaller.
  MutableTensorView histogram = {};
};
inline constexpr std::int64_t kMaxWeightBins = 4096;

/// One more product of queries and keys: sums over queries, for which the fused pass comes too
/// early. The same bits for any number of threads. All else as attention_weights().
FOVEA_API void attention_received(const WeightInputs& inputs, const AttentionOptions& options,
                                  const ReceivedAttention& received);

}  // namespace fovea
