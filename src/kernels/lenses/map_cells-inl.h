// SPDX-License-Identifier: Apache-2.0
//
// Reduces a panel's sums, one per query and map column, to the cells of the map (lenses-inl.h).

#if defined(FOVEA_KERNELS_LENSES_MAP_CELLS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_LENSES_MAP_CELLS_INL_H_
#undef FOVEA_KERNELS_LENSES_MAP_CELLS_INL_H_
#else
#define FOVEA_KERNELS_LENSES_MAP_CELLS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "fovea/simd_math-inl.h"

#include "kernels/lenses/lenses.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/simd/sums-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"
#include "problem/cells.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// The rows of a panel that belong to one row of the map, within one vector.
struct Band {
  std::int64_t begin, end;  // lanes
  float* cells;             // row of the map, or of map_edges
};

class MapCells {
 public:
  MapCells(const LensSetup& lenses, const ForwardHead& head, std::int64_t block_keys)
      : lenses_(lenses), head_(head), block_keys_(block_keys) {}

  /// Adds the sums of a finished panel to the map. Weights are factor[lane] 2^(score - maximum).
  /// `numbers` is a buffer for one vector.
  void add(const Panel& panel, const PanelLenses& seen, const float* factor, float score_factor,
           float* numbers) const {
    if (panel.keys_begin >= panel.keys_end) return;
    Band bands[kPanelLanes];
    const std::int64_t count = find_bands(panel, bands);
    const std::int64_t first = panel.keys_begin / block_keys_;
    const std::int64_t end = (panel.keys_end + block_keys_ - 1) / block_keys_;
    for (std::int64_t block = first; block < end; ++block) {
      if (seen.block_seen[block] == 0) continue;
      const std::int64_t last_key = std::min((block + 1) * block_keys_, head_.kv_len) - 1;
      const std::int64_t last = cell_of(last_key, head_.kv_len, lenses_.map_columns);
      const Floats d;
      Vector weight[kPanelVectors];
      for (std::int64_t v = 0; v < panel.vectors; ++v) {
        const std::int64_t lane = v * kLanes;
        const Vector then = hn::Load(d, seen.block_maximum + block * kPanelLanes + lane);
        const Vector below = hn::Sub(then, hn::Load(d, panel.maximum + lane));
        weight[v] = hn::Mul(
            hn::Load(d, factor + lane),
            fovea::HWY_NAMESPACE::exp2_of_nonpositive(d, hn::Mul(hn::Set(d, score_factor), below)));
      }
      const std::int64_t column = cell_of(block * block_keys_, head_.kv_len, lenses_.map_columns);
      for (std::int64_t b = 0; b < count; ++b) {
        const std::int64_t v = bands[b].begin / kLanes;
        add_band(bands[b], seen.cells + (block + column) * kPanelLanes + v * kLanes, weight[v],
                 last + 1 - column, numbers, bands[b].cells + column);
      }
    }
    for (std::int64_t b = 0; b < count; ++b) mark(panel, bands[b]);
  }

 private:
  /// Sets the cells of NaN rows to NaN, from the first visible key to the last.
  void mark(const Panel& panel, const Band& band) const {
    for (std::int64_t lane = band.begin; lane < band.end; ++lane) {
      if (!std::isnan(panel.sum[lane]) || panel.key_begin[lane] >= panel.key_end[lane]) continue;
      const std::int64_t last = cell_of(panel.key_end[lane] - 1, head_.kv_len, lenses_.map_columns);
      for (std::int64_t c = cell_of(panel.key_begin[lane], head_.kv_len, lenses_.map_columns);
           c <= last; ++c) {
        band.cells[c] = std::numeric_limits<float>::quiet_NaN();
      }
    }
  }

  std::int64_t find_bands(const Panel& panel, Band* bands) const {
    const std::int64_t q_len = head_.lenses->q_len;
    std::int64_t count = 0;
    for (std::int64_t lane = 0; lane < panel.rows;) {
      const std::int64_t query = panel.first_query + lane;
      const std::int64_t row = cell_of(query, q_len, lenses_.map_rows);
      const std::int64_t row_end = cell_begin(row + 1, q_len, lenses_.map_rows);
      const std::int64_t end =
          std::min({panel.rows, lane + (row_end - query), (lane / kLanes + 1) * kLanes});
      bands[count++] = {lane, end, cells_of(query, row, row_end)};
      lane = end;
    }
    return count;
  }

  /// Returns a row of the map if all its queries are in one chunk, else the chunk's row of
  /// map_edges.
  float* cells_of(std::int64_t query, std::int64_t row, std::int64_t row_end) const {
    const HeadLenses& to = *head_.lenses;
    const std::int64_t chunk_queries = lenses_.chunk_panels * kPanelLanes;
    const std::int64_t chunk = query / chunk_queries;
    const bool before = cell_begin(row, to.q_len, lenses_.map_rows) < chunk * chunk_queries;
    const bool after = row_end > (chunk + 1) * chunk_queries;
    if (!before && !after) return to.map + row * to.map_stride;
    return to.map_edges + (chunk * 2 + (before ? 0 : 1)) * lenses_.map_columns;
  }

  /// Adds the cells of `columns` adjacent columns, which are kPanelLanes apart in `from`.
  HWY_INLINE void add_band(const Band& band, const float* from, Vector weight, std::int64_t columns,
                           float* numbers, float* to) const {
    const Floats d;
    const auto cell = [&](std::int64_t c) HWY_ATTR {
      const Vector x = hn::Load(d, from + c * kPanelLanes);
      // Cells without visible keys stay 0, even if `weight` is not finite.
      return hn::IfThenZeroElse(hn::Eq(x, hn::Zero(d)), hn::Mul(weight, x));
    };
    const bool whole = band.end - band.begin == kLanes && lenses_.pool != Pool::kMax;
    std::int64_t c = 0;
    for (; whole && c + 4 <= columns; c += 4) {
      const Vector cells[4] = {cell(c), cell(c + 1), cell(c + 2), cell(c + 3)};
      float sums[4];
      store_sums_of_4(cells, sums);
      for (int i = 0; i < 4; ++i) to[c + i] += sums[i];
    }
    for (; c < columns; c += 4) {
      const std::int64_t here = std::min<std::int64_t>(4, columns - c);
      Vector cells[4];
      for (std::int64_t i = 0; i < 4; ++i) cells[i] = cell(c + std::min(i, here - 1));
      if (lenses_.pool == Pool::kMax) {
        raise(band, cells, here, numbers, to + c);
      } else {
        add_sums(band, cells, here, numbers, to + c);
      }
    }
  }

  /// Adds the sums of `columns` vectors over the lanes of a band.
  static HWY_INLINE void add_sums(const Band& band, const Vector (&cells)[4], std::int64_t columns,
                                  float* numbers, float* to) {
    const Floats d;
    if (band.end - band.begin == kLanes) {
      float sums[4];
      store_sums_of_4(cells, sums);
      for (std::int64_t i = 0; i < columns; ++i) to[i] += sums[i];
      return;
    }
    for (std::int64_t i = 0; i < columns; ++i) {
      hn::Store(cells[i], d, numbers);
      float sum = 0.0f;
      for (std::int64_t lane = band.begin; lane < band.end; ++lane) sum += numbers[lane % kLanes];
      to[i] += sum;
    }
  }

  static HWY_INLINE void raise(const Band& band, const Vector (&cells)[4], std::int64_t columns,
                               float* numbers, float* to) {
    const Floats d;
    for (std::int64_t i = 0; i < columns; ++i) {
      hn::Store(cells[i], d, numbers);
      for (std::int64_t lane = band.begin; lane < band.end; ++lane) {
        to[i] = std::max(to[i], numbers[lane % kLanes]);
      }
    }
  }

  const LensSetup& lenses_;
  const ForwardHead& head_;
  const std::int64_t block_keys_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_LENSES_MAP_CELLS_INL_H_
