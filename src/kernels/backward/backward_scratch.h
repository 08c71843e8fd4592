// SPDX-License-Identifier: Apache-2.0
//
// How one thread's scratch memory is divided for the backward pass: what the forward pass has,
// which computes the scores anew, and what the gradients need beside it.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tile/scratch.h"

namespace fovea::kernels {

struct BackwardScratchSizes {
  ForwardScratchSizes forward;          // without values
  std::int64_t row_stride;              // of rows of weights of a key
  std::int64_t value_steps;             // of a tile, over value_dim
  std::int64_t block_steps;             // over the keys of a block
  std::int64_t key_width, value_width;  // head_dim and value_dim in whole vectors
  bool rows_are_pairs;                  // rows of weights need no memory of their own
  bool derivative;
  std::int64_t bias_rows, bias_columns;  // of the gradient of a block's bias
  std::int64_t distances;                // of the gradient of position biases
  std::int64_t relevance;                // numbers per key
};

struct BackwardScratch {
  /// Its scores become pairs of the gradients of scores, or, where rows are pairs, the weights.
  ForwardScratch forward;
  float* value_keys;       // values in tiles of [value_steps][tile_rows], as keys are
  float* grad_panel;       // [value_steps][lanes], of the context
  float* key_rows;         // [block_steps][key_width]
  float* query_rows;       // [lanes][key_width]
  float* grad_rows;        // [lanes][value_width], of the context
  float* gradients;        // [block_keys][lanes] of scores; one tile where rows are no pairs
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
  std::int32_t* doubtful;  // [lanes], queries with a nan or inf in the gradient of the context

  /// Lays the parts out from `base`, which is aligned to 64 bytes, or null to count only. Returns
  /// the bytes used.
  std::size_t lay_out(std::byte* base, const BackwardScratchSizes& sizes);
};

}  // namespace fovea::kernels
