// SPDX-License-Identifier: Apache-2.0
//
// Lenses: per-row and per-cell statistics of the attention weights, computed by attention_forward
// in the fused pass. The weight matrix is never stored. A lens whose tensors are undefined costs
// nothing.

#pragma once

#include <cstdint>

#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea {

/// Per-row statistics of the weights. Undefined views are skipped.
///
/// Every tensor is [batch, q_heads, q_len] with any strides, float32 (float64 for float64 inputs);
/// maximum_key is int64. Distances are differences of positions. Query i is at position i + offset
/// (AttentionOptions::alignment), so distances in a causal row are never negative. With packed
/// sequences, positions count within the sequence, but maximum_key is an index of the key tensor.
///
/// In a row that sees no key, entropy, maximum and first_key are 0, maximum_key is -1, and the
/// distances and mean_offset are NaN. In a row with NaN or +infinity among its scores, all
/// statistics are NaN and maximum_key is -1.
struct RowStatistics {
  MutableTensorView entropy = {};            ///< -sum_j w_j ln(w_j), in nats
  MutableTensorView maximum = {};            ///< the largest weight of the row
  MutableTensorView maximum_key = {};        ///< the key of the largest score; the lowest on ties
  MutableTensorView mean_distance = {};      ///< sum_j w_j (i + offset - j) / sum_j w_j
  MutableTensorView distance_variance = {};  ///< sum_j w_j (i + offset - j - mean)^2 / sum_j w_j
  MutableTensorView first_key = {};          ///< the weight of key 0 of the row's sequence
  /// sum_j w_j (j - maximum_key) / sum_j w_j: the mean key as seen from maximum_key. Unlike
  /// mean_distance, it has all its digits if the keys with weight are far away.
  MutableTensorView mean_offset = {};
};

/// The k largest weights of each row, in descending order of scores; ties are broken by the lower
/// key. If a row sees fewer than k keys, the remaining entries have key -1 and weight 0. In a NaN
/// row all keys are -1 and all weights are NaN.
struct TopKeys {
  /// Both [batch, q_heads, q_len, k] with the same k, from 1 to min(kMaxTopKeys, kv_len).
  MutableTensorView keys = {};     ///< int64, indices of the key tensor; last dimension contiguous
  MutableTensorView weights = {};  ///< float32 (float64 for float64 inputs); last dimension
                                   ///< contiguous
};
inline constexpr std::int64_t kMaxTopKeys = 64;

/// The pooling operation for the weights in a cell of a map.
enum class Pool : std::uint8_t { kSum, kMean, kMax };

/// Returns "sum", "mean" or "max".
FOVEA_API const char* pool_name(Pool pool);

/// The weight matrix of each head, pooled to R x C cells. Cell row r covers the queries in the
/// half-open range [floor(r q_len / R), floor((r + 1) q_len / R)), or [r n, min((r + 1) n, q_len))
/// with n = cell_queries. Cell columns divide the keys in the same way.
struct PooledMap {
  /// [batch, q_heads, R, C], 1 <= R <= q_len, 1 <= C <= kv_len; float32 (float64 for float64
  /// inputs), last dimension contiguous. A cell without visible pairs is 0, or NaN with kMean. If a
  /// row is NaN, all its cells from the row's first visible key to its last are NaN.
  MutableTensorView cells = {};
  /// int64 of the same shape: the number of (query, key) pairs in each cell that neither the mask
  /// nor a bias of -inf hides, the divisor of kMean.
  MutableTensorView pairs = {};
  Pool pool = Pool::kSum;
  /// If greater than 0: the number of queries in each cell row, fewer in the last one, so that
  /// R = ceil(q_len / cell_queries). Cells of two sizes nest if one size divides the other, which
  /// cells of a given count do not. cell_keys does the same for cell columns.
  std::int64_t cell_queries = 0;
  std::int64_t cell_keys = 0;
};

/// All results that one pass can compute.
///
/// Weights are those before dropout; calls with dropout are rejected. With a sink, the weights of a
/// row sum to 1 minus the sink's share. Maps of packed sequences are not supported.
struct Lenses {
  RowStatistics rows = {};
  TopKeys top = {};
  PooledMap map = {};
};

}  // namespace fovea
