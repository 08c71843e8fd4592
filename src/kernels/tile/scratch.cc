// SPDX-License-Identifier: Apache-2.0
//
// The layout of the scratch memory of the forward pass (scratch.h).

#include "kernels/tile/scratch.h"

#include "kernels/simd/arena.h"

namespace fovea::kernels {

std::size_t ForwardScratch::lay_out(std::byte* base, const ForwardScratchSizes& s) {
  Arena arena(base);
  panels = arena.take<Panel>(s.panels);
  for (std::int64_t p = 0; p < s.panels; ++p) {
    Panel unused;
    Panel& panel = base == nullptr ? unused : panels[p];
    if (s.panels_at_once == 0 || p < s.panels_at_once || base == nullptr) {
      const bool own = s.panels_at_once == 0 || p < s.panels_at_once;
      panel.queries = arena.take<float>(own ? s.query_steps * s.lanes : 0);
      panel.context = arena.take<float>(own ? s.value_dim * s.lanes : 0);
    } else {
      panel.queries = panels[p % s.panels_at_once].queries;
      panel.context = panels[p % s.panels_at_once].context;
    }
    panel.maximum = arena.take<float>(s.lanes);
    panel.sum = arena.take<float>(s.lanes);
    panel.lse_sum = s.weights > 0 ? arena.take<float>(s.lanes) : panel.sum;
    panel.key_begin = arena.take<std::int64_t>(s.lanes);
    panel.key_end = arena.take<std::int64_t>(s.lanes);
  }
  const bool two = s.weights > 0;
  scores = arena.take<float>(s.block_keys * s.lanes);
  other_scores = arena.take<float>(two ? s.block_keys * s.lanes : 0);
  weights = two ? arena.take<float>(s.weights) : scores;
  other_weights = arena.take<float>(s.weights);
  first_scores = arena.take<float>(two ? (s.block_keys + 16) * s.lanes : 0);
  keys = arena.take<float>(s.keys > 0 ? s.keys : s.block_keys * s.query_steps);
  // One extra cache line: tiles at power-of-two distances would map to the same cache sets.
  value_tile_stride = s.block_steps * s.tile_rows + 16;
  values = arena.take<float>(s.keys > 0 ? s.values : s.value_tiles * value_tile_stride);
  blocks = arena.take<std::uint8_t>(s.blocks);
  unfit = arena.take<std::uint32_t>(s.unfit);
  block_maximum = arena.take<float>(s.lanes);
  ignored_maximum = arena.take<float>(s.lanes);
  block_sum = arena.take<float>(s.lanes);
  block_lse_sum = arena.take<float>(two ? s.lanes : 0);
  factor = arena.take<float>(s.lanes);
  bias_tiles = arena.take<float>(s.lanes * s.bias_keys);
  mask_rows = arena.take<float>(s.rows_of_mask ? s.lanes * s.tile_rows : 0);
  mask_tile = arena.take<float>(s.rows_of_mask ? s.lanes * s.tile_rows : 0);
  kept = arena.take<float>(s.dropout ? s.lanes * s.tile_rows : 0);
  // All distances between the item's queries and the keys. A tile of keys and the lanes of a panel
  // may extend beyond the last key and the last query.
  position_bias =
      arena.take<float>(s.position_bias ? s.panels * s.lanes + s.most_keys + 2 * s.block_keys : 0);
  key_begin = arena.take<std::int32_t>(s.lanes);
  key_end = arena.take<std::int32_t>(s.lanes);
  segments = arena.take<Segment>(s.tiles);
  masked = arena.take<std::uint8_t>(s.tiles);
  visible = arena.take<std::uint8_t>(s.rows_of_mask ? s.lanes * s.block_keys : 0);
  panel_of_block = arena.take<Panel>(s.rows_of_mask ? 1 : 0);
  block_key_begin = arena.take<std::int64_t>(s.rows_of_mask ? s.lanes : 0);
  block_key_end = arena.take<std::int64_t>(s.rows_of_mask ? s.lanes : 0);
  const std::int64_t keys_with_values = s.value_dim > 0 ? s.block_keys : 0;
  doubtful = arena.take<std::int32_t>(keys_with_values);
  doubtful_visible = arena.take<float>(keys_with_values * s.lanes);
  return arena.used();
}

}  // namespace fovea::kernels
