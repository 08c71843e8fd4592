// SPDX-License-Identifier: Apache-2.0
//
// Layout of one thread's scratch memory for the backward pass: the buffers of the forward pass, for
// recomputing the scores, and additional buffers for the gradients.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tile/scratch.h"

namespace fovea::kernels {

/// The buffers below in floats, unless said otherwise.
struct BackwardScratchSizes {
  ForwardScratchSizes forward;  // without values
  std::int64_t value_keys, grad_panel, key_rows, query_rows, grad_rows;
  std::int64_t gradients;
  std::int64_t weight_rows;     // 0: in place of the scores
  std::int64_t gradient_rows;   // 0: `gradients` itself
  std::int64_t gradient_pairs;  // 0: in place of the scores
  std::int64_t query_sums, key_sums, value_sums;
  // These do not depend on the layout of the products.
  std::int64_t queries = 0;  // that are processed together
  std::int64_t derivative = 0;
  std::int64_t bias_rows = 0, bias_columns = 0;  // size of the gradient of a block's bias
  std::int64_t distances = 0;                    // size of the gradient of position biases
  std::int64_t relevance = 0;                    // floats per key
};

/// Layouts that depend on the instructions are described in row_products-inl.h and
/// tile_products-inl.h.
struct BackwardScratch {
  ForwardScratch forward;  // buffers of the recomputed forward pass
  float* value_keys;       // values packed like keys
  float* grad_panel;       // gradient of the context, packed like queries
  float* key_rows;         // operands of the sums: keys for dQ,
  float* query_rows;       // queries for dK,
  float* grad_rows;        // gradient of the context for dV
  float* gradients;        // dP, then the gradients of scores
  float* weight_rows;      // P for dV
  float* gradient_rows;    // dS for dK
  float* gradient_pairs;   // dS for dQ
  float* query_sums;       // dQ of the queries that are processed together
  float* key_sums;         // dK of the block
  float* value_sums;       // dV of the block
  float* derivative;       // [tile_rows][lanes]
  float* log2_sum;         // [queries]
  float* delta;            // [queries]
  float* bias;             // [bias_rows][bias_columns]
  float* by_distance;      // [distances]
  float* relevance;        // [block_keys][relevance]
  std::int32_t* doubtful;  // [queries] with a NaN or infinity in the context's gradient

  /// Lays out the buffers from `base`, which is aligned to 64 bytes, and returns the bytes used. If
  /// `base` is null, only counts the bytes.
  std::size_t lay_out(std::byte* base, const BackwardScratchSizes& sizes);
};

}  // namespace fovea::kernels
