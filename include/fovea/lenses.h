// SPDX-License-Identifier: Apache-2.0
//
// Lenses: what attention_forward watches while it computes, and fused attention otherwise throws
// away. They ride on the fused pass: the weights are never stored, and a lens that is not asked for
// costs nothing.

#pragma once

#include <cstdint>

#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea {

/// What is told of each row of weights; what is absent is not asked for.
///
/// Every tensor is [batch, q_heads, q_len] of any strides, float32 (float64 where the inputs are);
/// maximum_key is int64. Distances are those between positions: query i stands at i + offset
/// (AttentionOptions::alignment), so that a causal row looks at distances from 0 on.
///
/// A row that sees no key has no entropy, maximum, first_key and maximum_key but 0, 0, 0 and -1,
/// and nan for the distances. A row with a nan or inf among its scores is nan throughout, and has
/// maximum_key -1.
struct RowStatistics {
  MutableTensorView entropy = {};            ///< -sum_j w_j ln(w_j), in nats
  MutableTensorView maximum = {};            ///< the largest weight
  MutableTensorView maximum_key = {};        ///< its key, the lowest of equals
  MutableTensorView mean_distance = {};      ///< sum_j w_j (i + offset - j) / sum_j w_j
  MutableTensorView distance_variance = {};  ///< sum_j w_j (i + offset - j - mean)^2 / sum_j w_j
  MutableTensorView first_key = {};          ///< the weight of key 0, of its sequence
};

/// The largest weights of each row, in descending order, the lower key first where weights are
/// equal. Where a row sees fewer keys, what is left over is key -1, weight 0; of a row that is nan
/// all keys are -1, all weights nan.
struct TopKeys {
  /// Both [batch, q_heads, q_len, k] with the same k, 1 to kMaxTopKeys and at most kv_len.
  MutableTensorView keys = {};     ///< int64; last dimension contiguous
  MutableTensorView weights = {};  ///< float32 (float64 where the inputs are); likewise
};
inline constexpr std::int64_t kMaxTopKeys = 64;

/// What the weights in a cell of a map become.
enum class Pool : std::uint8_t { kSum, kMean, kMax };

/// "sum", "mean" or "max".
FOVEA_API const char* pool_name(Pool pool);

/// All weights of a head, pooled: of R rows of cells, row r has the queries from floor(r q_len / R)
/// to before floor((r + 1) q_len / R); columns likewise.
struct PooledMap {
  /// [batch, q_heads, R, C], 1 <= R <= q_len, 1 <= C <= kv_len; float32 (float64 where the inputs
  /// are), last dimension contiguous. A cell whose pairs the mask hides is 0, its mean nan; a
  /// row that is nan makes nan of the cells from the first key that it sees to the last.
  MutableTensorView cells = {};
  /// int64 of the same shape: how many pairs of a query and a key the mask lets be seen in each
  /// cell, over which a mean is taken.
  MutableTensorView pairs = {};
  Pool pool = Pool::kSum;
};

/// What can be watched in one pass.
///
/// Weights are those before dropout, which must be none. With a sink a row adds up to 1 less the
/// sink's share. Packed sequences have no map.
struct Lenses {
  RowStatistics rows = {};
  TopKeys top = {};
  PooledMap map = {};
};

}  // namespace fovea
