// SPDX-License-Identifier: Apache-2.0
//
// The scratch memory of the lenses of the forward pass (fovea/lenses.h).

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tile/setup.h"

namespace fovea::kernels {

/// What is known of the rows of a panel so far.
struct PanelLenses {
  // Of 2^x with x the scores less the row's maximum, times log2(e): the sum of 2^x x, and sums of
  // 2^x times the distance from maximum_key, and times its square.
  double *exponents, *distances, *squares;  // [lanes]
  std::int64_t* maximum_key;                // [lanes], -1 before the first
  float* first_score;                       // [lanes], of key 0
  float* top_scores;       // [lanes][top_stride], from top_pad on in descending order
  std::int32_t* top_keys;  // likewise
  float* top_least;        // [lanes], what a score must exceed
  bool top_begun;
  float* cells;              // [map columns + blocks][lanes], pooled within a block: see cell()
  float* block_maximum;      // [blocks][lanes], the row's maximum when the block was pooled
  std::uint8_t* block_seen;  // [blocks]
};

struct LensScratchSizes {
  LensSetup setup;
  std::int64_t panels, lanes, vector_lanes, tile_rows, block_keys, most_keys;
};

struct LensScratch {
  PanelLenses* panels;         // [panels]
  float* tile_maximum;         // [block_keys / tile_rows][lanes]
  float* before;               // [lanes], the rows' maxima before the block
  float* centre;               // [lanes], the key of the block that is nearest to maximum_key
  float* off;                  // [lanes], by how many keys it is off
  float* exponents;            // [lanes], the block's sums
  float* distances;            // [lanes]
  float* squares;              // [lanes]
  float* row;                  // [lanes], for whatever a step needs
  std::int64_t* column_begin;  // [map columns + 1], keys
  std::int64_t top_pad, top_stride;
  std::int32_t* top_candidates;  // [block_keys / tile_rows * lanes + vector_lanes]

  /// As ForwardScratch::lay_out().
  std::size_t lay_out(std::byte* base, const LensScratchSizes& sizes);
};

}  // namespace fovea::kernels
