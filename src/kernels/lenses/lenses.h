// SPDX-License-Identifier: Apache-2.0
//
// Scratch memory of the forward pass's lenses (fovea/lenses.h).

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tile/setup.h"

namespace fovea::kernels {

/// Running lens results of the rows of a panel.
struct PanelLenses {
  // With x = (score - running maximum) * log2(e): sums of 2^x x, of 2^x times the distance from
  // maximum_key, and of 2^x times its square.
  // The tile unit has sums of 2^x as well, the mean key instead of the distance, and squares about
  // it.
  double *exponents, *distances, *squares;  // [lanes]
  float* sums;                              // [lanes]
  std::int64_t* maximum_key;                // [lanes], initially -1
  float* first_score;                       // [lanes], of key 0
  float* top_scores;                        // [top_list_length()][lanes], in descending order
  std::int32_t* top_keys;                   // [top_list_length()][lanes], keys of top_scores, or -1
  float* top_least;                         // [lanes], threshold that a score must exceed
  bool top_begun;
  float* cells;              // [map columns + blocks][lanes]; column c in block b is at b + c
  float* block_maximum;      // [blocks][lanes], running maximum when the block was pooled
  std::uint8_t* block_seen;  // [blocks]
};

/// Lists of 2 to so many keys all have this length, so that they may stay in registers.
inline constexpr std::int64_t kFewTopKeys = 8;
/// Returns the length of the list of a row's `k` top keys.
constexpr std::int64_t top_list_length(std::int64_t k) {
  return k > 1 && k <= kFewTopKeys ? kFewTopKeys : k;
}

struct LensScratchSizes {
  LensSetup setup;
  std::int64_t panels, lanes, tile_rows, block_keys, most_keys;
};

struct LensScratch {
  PanelLenses* panels;         // [panels]
  float* tile_maximum;         // [block_keys / tile_rows][lanes]
  float* before;               // [lanes], running maxima before the block
  float* centre;               // [lanes], key of the block that is nearest to maximum_key
  float* off;                  // [lanes], centre minus maximum_key
  float* exponents;            // [lanes], sums of the block
  float* distances;            // [lanes]
  float* squares;              // [lanes]
  float* sums;                 // [lanes]
  float *largest, *first;      // [lanes], weights
  float* row;                  // [lanes], temporary of a single step
  std::int64_t* column_begin;  // [map columns + 1], first key of each column
  std::uint32_t* hits;         // [2][lanes], scores above the thresholds, one bit each

  static LensScratch at(std::byte* base, const LensScratchSizes& sizes) {
    LensScratch scratch;
    scratch.lay_out(base, sizes);
    return scratch;
  }
  /// Same as ForwardScratch::lay_out().
  std::size_t lay_out(std::byte* base, const LensScratchSizes& sizes);
};

}  // namespace fovea::kernels
