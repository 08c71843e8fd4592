// SPDX-License-Identifier: Apache-2.0
//
// Attention weights, recomputed after a fused pass that did not store them: any rectangle of the
// matrix, at a cost proportional to the rectangle, and per-key totals over all queries.

#pragma once

#include <cstdint>
#include <optional>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/lenses.h"
#include "fovea/tensor.h"

namespace fovea {

/// The query and key of attention_forward, and the lse it returned for them with the same options.
/// Types and strides are those of attention_forward; packed sequences and dropout are not
/// supported.
struct WeightInputs {
  TensorView query;     ///< [batch, q_heads,  q_len,  head_dim]
  TensorView key;       ///< [batch, kv_heads, kv_len, head_dim]
  TensorView lse = {};  ///< [batch, q_heads, q_len], any strides
};

/// A range of consecutive queries and keys of one head.
struct WeightTile {
  std::int64_t batch = 0;
  std::int64_t head = 0;  ///< index of a query head
  std::int64_t first_query = 0, queries = 0;
  std::int64_t first_key = 0, keys = 0;
};

/// Computes the weights of a rectangle, exp(score - lse); 0 where the mask hides the key.
///
/// weights  [queries, keys]  float32 (float64 for float64 inputs), last dimension contiguous
///
/// Numerics bit-identical to the same part of any larger rectangle. Full rows sum to 1 minus the
///          sink's share, up to the rounding of lse.
/// Cost     2 * queries * keys * head_dim flop.
/// Errors   throws InvalidArgument naming the argument, the expected and the actual value; Stopped
///          after Execution::stop.
FOVEA_API void attention_weights(const WeightInputs& inputs, const WeightTile& tile,
                                 const AttentionOptions& options, const MutableTensorView& weights);

/// Computes the scores of a rectangle as they enter the softmax: with scale, softcap, custom
/// function and biases; -inf where the mask hides the key. inputs.lse is not used. Otherwise as
/// attention_weights().
FOVEA_API void attention_scores(const WeightInputs& inputs, const WeightTile& tile,
                                const AttentionOptions& options, const MutableTensorView& scores);

/// Pools the weights of a rectangle to map.cells and counts visible pairs in map.pairs. Both are
/// [R, C] with 1 <= R <= queries and 1 <= C <= keys; cells are divided as in PooledMap. Otherwise
/// as above.
FOVEA_API void attention_weights(const WeightInputs& inputs, const WeightTile& tile,
                                 const AttentionOptions& options, const PooledMap& map);

/// One query of one head or of all heads.
struct WeightRow {
  std::int64_t batch = 0;
  std::optional<std::int64_t> head = {};  ///< index of a query head; all heads if not set
  std::int64_t query = 0;
};

/// Computes the weights of one query on all keys, at memory bandwidth: query heads that share keys
/// read them once. For a few queries of a long cache, this takes a small fraction of the time of a
/// rectangle. Results differ from those of a rectangle by rounding.
///
/// weights  [kv_len], or [q_heads, kv_len] for all heads; otherwise as for a rectangle
///
/// Cost     kv_len * head_dim numbers read per key head.
/// Threads  bit-identical for any number of threads.
/// Errors   as attention_weights().
FOVEA_API void attention_row(const WeightInputs& inputs, const WeightRow& row,
                             const AttentionOptions& options, const MutableTensorView& weights);

/// The attention that each key receives over all queries. Undefined views are skipped.
struct ReceivedAttention {
  // [batch, q_heads, kv_len], float32 (float64 for float64 inputs), last dimension contiguous.
  MutableTensorView sum = {};      ///< the sum of the key's weights over all queries
  MutableTensorView largest = {};  ///< the maximum of the key's weights over all queries
  /// The sum over the last `recent_queries` queries, as used by methods that evict keys from a
  /// cache (Li et al. 2024, SnapKV).
  MutableTensorView recent = {};
  std::int64_t recent_queries = 0;
  /// Counts of visible weights by size: [batch, q_heads, bins], int64, last dimension contiguous,
  /// with 1 to kMaxWeightBins bins. Bin b counts weights with 2^-(b + 1) < w <= 2^-b; the last bin
  /// also counts all smaller ones.
  MutableTensorView histogram = {};
};
inline constexpr std::int64_t kMaxWeightBins = 4096;

/// Computes per-key totals over queries with one more product of queries and keys. The fused pass
/// cannot compute them, because it does not know the lse of a row until the row is complete.
/// Bit-identical for any number of threads. Otherwise as attention_weights().
FOVEA_API void attention_received(const WeightInputs& inputs, const AttentionOptions& options,
                                  const ReceivedAttention& received);

}  // namespace fovea
