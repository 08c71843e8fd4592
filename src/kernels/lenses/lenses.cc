// SPDX-License-Identifier: Apache-2.0
//
// Layout of the scratch memory of the lenses (lenses.h).

#include "kernels/lenses/lenses.h"

#include "kernels/simd/arena.h"

namespace fovea::kernels {

std::size_t LensScratch::lay_out(std::byte* base, const LensScratchSizes& s) {
  if (!s.setup.any()) return 0;
  Arena arena(base);
  const std::int64_t blocks = (s.most_keys + s.block_keys - 1) / s.block_keys;
  const std::int64_t top = top_list_length(s.setup.top) * s.lanes;
  const std::int64_t statistics = s.setup.statistics ? s.lanes : 0;
  const std::int64_t columns = s.setup.map ? s.setup.map_columns.cells() : 0;
  panels = arena.take<PanelLenses>(s.panels);
  for (std::int64_t p = 0; p < s.panels; ++p) {
    PanelLenses unused;
    PanelLenses& panel = base == nullptr ? unused : panels[p];
    panel.exponents = arena.take<double>(statistics);
    panel.distances = arena.take<double>(statistics);
    panel.squares = arena.take<double>(statistics);
    panel.sums = arena.take<float>(statistics);
    panel.maximum_key = arena.take<std::int64_t>(statistics);
    panel.first_score = arena.take<float>(statistics);
    panel.top_scores = arena.take<float>(top);
    panel.top_keys = arena.take<std::int32_t>(top);
    panel.top_least = arena.take<float>(s.lanes);
    panel.cells = arena.take<float>(s.setup.map ? (columns + blocks) * s.lanes : 0);
    panel.block_maximum = arena.take<float>(s.setup.map ? blocks * s.lanes : 0);
    panel.block_seen = arena.take<std::uint8_t>(s.setup.map ? blocks : 0);
  }
  tile_maximum = arena.take<float>(s.block_keys / s.tile_rows * s.lanes);
  before = arena.take<float>(s.lanes);
  centre = arena.take<float>(statistics);
  off = arena.take<float>(statistics);
  exponents = arena.take<float>(s.lanes);
  distances = arena.take<float>(s.lanes);
  squares = arena.take<float>(s.lanes);
  sums = arena.take<float>(s.lanes);
  largest = arena.take<float>(s.lanes);
  first = arena.take<float>(s.lanes);
  hits = arena.take<std::uint32_t>(2 * s.lanes);
  row = arena.take<float>(s.lanes);
  column_begin = arena.take<std::int64_t>(s.setup.map ? columns + 1 : 0);
  return arena.used();
}

}  // namespace fovea::kernels
