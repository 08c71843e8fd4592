// SPDX-License-Identifier: Apache-2.0
//
// How one thread's scratch memory is divided for the forward pass. The same walk over the parts
// says how much there must be and where each lies.

#pragma once

#include <cstddef>
#include <cstdint>

namespace fovea::kernels {

/// The keys that the rows of one vector see: none outside of begin to end, and, where the mask is
/// made of ranges, all of them all keys from all_begin to all_end.
struct VectorRange {
  std::int64_t begin, end, all_begin, all_end;
};

/// One panel of queries and what is known of its rows so far.
struct Panel {
  std::int64_t first_query;
  std::int64_t rows;        // fewer than lanes only in the last panel
  std::int64_t vectors;     // that hold rows
  bool exact;               // every row sees all keys in its range (KeyRange::exact)
  bool loaded;              // `queries` are there
  bool closed;              // the rows' results are written
  std::int64_t keys_begin;  // all keys that a row sees lie from here
  std::int64_t keys_end;    // to here
  VectorRange ranges[4];
  float* queries;           // [query_steps][lanes]
  float* context;           // [value_dim][lanes], to be divided by `sum`
  float* maximum;           // [lanes], of the scores times log2(e)
  float* sum;               // [lanes], of 2^(score - maximum)
  std::int64_t* key_begin;  // [lanes], the range of keys a row sees;
  std::int64_t* key_end;    // lanes without a row have that of the last row
};

/// A run of tiles of a block that the same vectors of a panel look at.
struct Segment {
  std::int64_t first_key;  // within the block, a multiple of the tile's rows
  std::int64_t keys;       // likewise
  std::int64_t first_vector;
  std::int64_t vectors;
  bool masked;  // there are tiles in it with a hidden key
};

struct ForwardScratchSizes {
  std::int64_t panels, lanes, tile_rows, block_keys;
  std::int64_t query_steps, block_steps;  // of a tile, over head_dim and over the keys of a block
  std::int64_t value_dim, most_keys, bias_keys;
  bool rows_of_mask, dropout, position_bias;
};

struct ForwardScratch {
  Panel* panels;            // [panels]
  float* scores;            // [block_keys][lanes]; then the weights, [block_steps][lanes]
  float* keys;              // tiles of [query_steps][tile_rows]
  float* values;            // tiles of [block_steps][tile_rows], `value_tile_stride` apart
  float* block_maximum;     // [lanes]
  float* ignored_maximum;   // [lanes]
  float* block_sum;         // [lanes]
  float* factor;            // [lanes], by which what was summed before the block shrinks
  float* bias_tile;         // [bias_keys][lanes]
  float* mask_rows;         // [lanes][tile_rows]
  float* mask_tile;         // [tile_rows][lanes]
  float* kept;              // [tile_rows][lanes], what dropout multiplies weights by
  float* position_bias;     // by distance
  std::int32_t* key_begin;  // [lanes], panel.key_begin within the block
  std::int32_t* key_end;    // [lanes]
  Segment* segments;        // [block_keys / tile_rows]
  std::uint8_t* masked;     // [block_keys / tile_rows]: tiles with a hidden key
  std::uint8_t* visible;    // [lanes][block_keys], for masks that are no ranges
  std::int32_t* doubtful;   // [block_keys], keys with a nan or inf in the value
  float* doubtful_visible;  // [block_keys][lanes]
  std::int64_t value_tile_stride;

  /// Lays the parts out from `base`, which is aligned to 64 bytes, or null to count only. Returns
  /// the bytes used.
  std::size_t lay_out(std::byte* base, const ForwardScratchSizes& sizes);
};

}  // namespace fovea::kernels
