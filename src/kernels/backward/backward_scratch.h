// SPDX-License-Identifier: Apache-2.0
//
// Layout of one thread's scratch memory for the backward pass: the buffers of the forward pass, for
// recomputing the scores, and additional buffers for the gradients.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tile/scratch.h"

namespace fovea::kernels {

struct BackwardScratchSizes {
  ForwardScratchSizes forward;          // without values
  std::int64_t row_stride;              // floats per row of weights, one row per key
  std::int64_t value_steps;             // steps of a product over value_dim
  std::int64_t block_steps;             // steps of a product over the keys of a block
  std::int64_t key_width, value_width;  // head_dim and value_dim, rounded up to whole vectors
  bool rows_are_pairs;                  // rows of weights need no separate buffer
  bool derivative;
  std::int64_t bias_rows, bias_columns;  // size of the gradient of a block's bias
  std::int64_t distances;                // size of the gradient of position biases
  std::int64_t relevance;                // floats per key
};

struct BackwardScratch {
  /// Buffers of the recomputed forward pass. The scores are overwritten by pairs of score
  /// gradients, or by the weights if rows are pairs.
  ForwardScratch forward;
  float* value_keys;       // values packed like keys, in tiles of [value_steps][tile_rows]
  float* grad_panel;       // [value_steps][lanes], gradient of the context
  float* key_rows;         // [block_steps][key_width]
  float* query_rows;       // [lanes][key_width]
  float* grad_rows;        // [lanes][value_width], gradient of the context
  float* gradients;        // [block_keys][lanes], of scores; one tile unless rows are pairs
  float* weight_rows;      // [block_keys][row_stride]
  float* gradient_rows;    // [block_keys][row_stride], of scores
  float* query_sums;       // [lanes][key_width]
  float* key_sums;         // [block_keys][key_width]
  float* value_sums;       // [block_keys][value_width]
  float* derivative;       // [tile_rows][lanes]
  float* log2_sum;         // [lanes]
  float* delta;            // [lanes]
  float* bias;             // [bias_rows][bias_columns]
  float* by_distance;      // [distances]
  float* relevance;        // [block_keys][relevance]
  std::int32_t* doubtful;  // [lanes], queries with a NaN or infinity in the context's gradient

  /// Lays out the buffers from `base`, which is aligned to 64 bytes, and returns the bytes used. If
  /// `base` is null, only counts the bytes.
  std::size_t lay_out(std::byte* base, const BackwardScratchSizes& sizes);
};

}  // namespace fovea::kernels
