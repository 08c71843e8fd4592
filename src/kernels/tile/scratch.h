// SPDX-License-Identifier: Apache-2.0
//
// The layout of one thread's scratch memory for the forward pass. One function computes both the
// total size and the addresses of the parts.

#pragma once

#include <cstddef>
#include <cstdint>

namespace fovea::kernels {

/// The keys visible to the rows of one vector. No row sees a key outside [begin, end). If the mask
/// consists of exact ranges, every row sees all keys in [all_begin, all_end).
struct VectorRange {
  std::int64_t begin, end, all_begin, all_end;
};

/// One panel of queries and the running state of its rows.
struct Panel {
  std::int64_t first_query;  // a row, if it has rows of several heads
  std::int64_t rows;         // fewer than lanes only in the last panel
  std::int64_t vectors;      // the number of vectors that hold rows
  bool exact;                // every row sees all keys in its range (KeyRange::exact)
  bool loaded;               // `queries` is filled
  bool begun;                // `context` has numbers
  bool closed;               // the results of the rows are written
  std::uint64_t refused;     // the rows that are left to another pass, one bit each
  std::int64_t keys_begin;   // the range of all keys visible to any row
  std::int64_t keys_end;
  std::int64_t whole_begin;  // for a pipeline: the range of keys visible to every row
  std::int64_t whole_end;
  VectorRange ranges[4];
  float* queries;           // [query_steps][lanes], or quads (quads-inl.h)
  float* context;           // [value_dim][lanes], not yet divided by `sum`
  float* maximum;           // [lanes], of the scores times log2(e)
  float* sum;               // [lanes], of 2^(score - maximum)
  float* lse_sum;           // [lanes], the same for lse; usually `sum` itself
  std::int64_t* key_begin;  // [lanes], the range of keys visible to each row;
  std::int64_t* key_end;    // lanes without a row have the range of the last one, up to `vectors`
};

/// A run of adjacent tiles of a block that are computed for the same vectors of a panel.
struct Segment {
  std::int64_t first_key;  // within the block, a multiple of kTileRows
  std::int64_t keys;       // a multiple of kTileRows
  std::int64_t first_vector;
  std::int64_t vectors;
  bool masked;  // at least one tile has a hidden key
};

struct ForwardScratchSizes {
  std::int64_t panels, lanes, tile_rows, block_keys;
  std::int64_t query_steps, block_steps;  // tile steps over head_dim and over the keys of a block
  std::int64_t tiles;                     // of the keys of a block
  std::int64_t value_tiles;               // of value_dim, unless `values` is set
  std::int64_t value_dim, most_keys, bias_keys;
  bool rows_of_mask, dropout, position_bias;
  /// Unless 0, the floats of `weights`, of which there are then two, as of `scores`, and
  /// Panel::lse_sum has memory of its own.
  std::int64_t weights = 0;
  /// Unless 0, that many panels share the memory of their queries and contexts with all others.
  std::int64_t panels_at_once = 0;
  /// Unless 0, the floats of `keys` and of `values`, and the entries of `blocks`.
  std::int64_t keys = 0, values = 0, blocks = 0;
  /// The entries of `unfit`.
  std::int64_t unfit = 0;
};

struct ForwardScratch {
  Panel* panels;        // [panels]
  float* scores;        // [block_keys][lanes]
  float* weights;       // [block_steps][lanes]; usually in place of the scores
  float* other_scores;  // second buffers, for two blocks at a time
  float* other_weights;
  float* first_scores;      // [block_keys + 16][lanes], with two buffers
  float* keys;              // tiles of [query_steps][tile_rows]
  float* values;            // tiles of [block_steps][tile_rows], `value_tile_stride` apart
  float* block_maximum;     // [lanes]
  float* ignored_maximum;   // [lanes]
  float* block_sum;         // [lanes]
  float* block_lse_sum;     // [lanes], for Panel::lse_sum
  float* factor;            // [lanes], rescales the sums of earlier blocks
  float* bias_tiles;        // [bias_keys][lanes]
  float* mask_rows;         // [lanes][tile_rows]
  float* mask_tile;         // [tile_rows][lanes]
  float* kept;              // [tile_rows][lanes], dropout factors of the weights
  float* position_bias;     // indexed by distance
  std::int32_t* key_begin;  // [lanes], panel.key_begin within the block
  std::int32_t* key_end;    // [lanes]
  Segment* segments;        // [block_keys / tile_rows]
  std::uint8_t* masked;     // [block_keys / tile_rows]: tiles with a hidden key
  std::uint8_t* visible;    // [lanes][block_keys], for masks without exact ranges
  // For masks without exact ranges, a copy of a panel whose ranges are those within one block.
  Panel* panel_of_block;
  std::int64_t* block_key_begin;  // [lanes]
  std::int64_t* block_key_end;    // [lanes]
  std::int32_t* doubtful;         // [block_keys], keys with a NaN or infinity in the value
  float* doubtful_visible;        // [block_keys][lanes], 1 if the doubtful key is visible, else 0
  std::uint8_t* blocks;           // a note on each of several packed blocks
  std::uint32_t* unfit;  // the keys of each that the arithmetic does not take, one bit each
  std::int64_t value_tile_stride;

  /// Lays out the parts from `base`, which must be aligned to 64 bytes. If `base` is null, only the
  /// size is computed. Returns the bytes used.
  std::size_t lay_out(std::byte* base, const ForwardScratchSizes& sizes);
};

}  // namespace fovea::kernels
