// SPDX-License-Identifier: Apache-2.0
//
// The keys visible to a panel, derived from the mask: ranges per row, then, for each block, runs of
// tiles that are visible to the same vectors. Tiles that no row sees are skipped, as are vectors
// without a row that sees the tile. Only tiles with a hidden key are marked for masking.

#if defined(FOVEA_KERNELS_TILE_SEGMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_SEGMENTS_INL_H_
#undef FOVEA_KERNELS_TILE_SEGMENTS_INL_H_
#else
#define FOVEA_KERNELS_TILE_SEGMENTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/simd/simd-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Computes the range of visible keys of every row of a panel, among the keys [begin, end).
inline void find_ranges(const Mask& mask, const ForwardHead& head, std::int64_t begin,
                        std::int64_t end, Panel& panel) {
  panel.exact = true;
  if (mask.allows_all()) {
    // One loop for both: GCC's std::fill_n writes zeros by `rep stos`, which is slow to start.
    const hn::CappedTag<std::int64_t, kLanes> d;
    for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += hn::MaxLanes(d)) {
      hn::Store(hn::Set(d, begin), d, panel.key_begin + lane);
      hn::Store(hn::Set(d, end), d, panel.key_end + lane);
    }
    std::fill(panel.ranges, panel.ranges + panel.vectors,
              VectorRange{.begin = begin, .end = end, .all_begin = begin, .all_end = end});
    panel.keys_begin = begin;
    panel.keys_end = end;
    return;
  }
  panel.keys_begin = end;
  panel.keys_end = begin;
  KeyRange ranges[kPanelLanes];
  const std::int64_t first = panel.first_query;
  head.for_each_head(first, first + panel.rows, [&](std::int64_t row, std::int64_t count) {
    mask.key_ranges(head.place(row, begin), end - begin,
                    {ranges + (row - first), static_cast<std::size_t>(count)});
  });
  for (std::int64_t v = 0; v < panel.vectors; ++v) {
    VectorRange& seen = panel.ranges[v];
    seen = {.begin = end, .end = begin, .all_begin = begin, .all_end = end};
    for (std::int64_t lane = v * kLanes; lane < (v + 1) * kLanes; ++lane) {
      // Lanes without a row copy the range of the last row, which leaves [all_begin, all_end)
      // unchanged.
      const std::int64_t row = std::min(lane, panel.rows - 1);
      KeyRange range = ranges[row];
      range.exact = range.exact || row < lane;
      panel.key_begin[lane] = range.begin;
      panel.key_end[lane] = range.end;
      panel.exact = panel.exact && range.exact;
      if (range.begin < range.end) {
        seen.begin = std::min(seen.begin, range.begin);
        seen.end = std::max(seen.end, range.end);
      }
      seen.all_begin = std::max(seen.all_begin, range.begin);
      seen.all_end = std::min(seen.all_end, range.end);
    }
    if (seen.begin >= seen.end) continue;
    panel.keys_begin = std::min(panel.keys_begin, seen.begin);
    panel.keys_end = std::max(panel.keys_end, seen.end);
  }
}

/// Splits the tiles of a block into segments that are visible to the same vectors of the panel, by
/// the panel's ranges, and marks the tiles that need the mask. Returns the number of segments, 0 if
/// no key is visible.
inline std::int64_t find_segments(const Panel& panel, std::int64_t block, std::int64_t tiles,
                                  ForwardScratch& scratch) {
  const std::int64_t tiles_end = block + tiles * kTileRows;
  bool all = panel.exact;
  for (std::int64_t v = 0; v < panel.vectors; ++v) {
    const VectorRange& seen = panel.ranges[v];
    all = all && seen.all_begin <= block && seen.all_end >= tiles_end;
  }
  if (all) {
    std::fill(scratch.masked, scratch.masked + tiles, std::uint8_t{0});
    scratch.segments[0] = {0, tiles * kTileRows, 0, panel.vectors, false};
    return 1;
  }

  std::int64_t segments = 0;
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t from = block + t * kTileRows;
    const std::int64_t to = from + kTileRows;
    std::int64_t first = panel.vectors;
    std::int64_t last = -1;
    for (std::int64_t v = 0; v < panel.vectors; ++v) {
      if (panel.ranges[v].begin >= to || panel.ranges[v].end <= from) continue;
      first = std::min(first, v);
      last = v;
    }
    if (last < 0) continue;
    bool masked = !panel.exact;
    for (std::int64_t v = first; v <= last; ++v) {
      masked = masked || panel.ranges[v].all_begin > from || panel.ranges[v].all_end < to;
    }
    scratch.masked[t] = masked;
    Segment* previous = segments == 0 ? nullptr : &scratch.segments[segments - 1];
    if (previous != nullptr && previous->first_vector == first &&
        previous->vectors == last - first + 1 &&
        previous->first_key + previous->keys == t * kTileRows) {
      previous->keys += kTileRows;
      previous->masked = previous->masked || masked;
    } else {
      scratch.segments[segments++] = {t * kTileRows, kTileRows, first, last - first + 1, masked};
    }
  }
  return segments;
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_SEGMENTS_INL_H_
