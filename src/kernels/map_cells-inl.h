// SPDX-License-Identifier: Apache-2.0
//
// From the sums of a panel's rows over columns of a map to the cells themselves (lenses-inl.h).

#if defined(FOVEA_KERNELS_MAP_CELLS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_MAP_CELLS_INL_H_
#undef FOVEA_KERNELS_MAP_CELLS_INL_H_
#else
#define FOVEA_KERNELS_MAP_CELLS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "fovea/simd_math-inl.h"

#include "core/cells.h"
#include "kernels/forward.h"
#include "kernels/forward_scratch.h"
#include "kernels/lenses.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// The rows of a panel that belong to one row of the map, within one vector.
struct Band {
  std::int64_t begin, end;  // lanes
  float* cells;             // the row of the map, or of its edges
};

class MapCells {
 public:
  MapCells(const LensSetup& lenses, const ForwardHead& head, std::int64_t block_keys)
      : lenses_(lenses), head_(head), block_keys_(block_keys) {}

  /// Adds what a finished panel has gathered. factor[lane]: what 2^(score - maximum) is multiplied
  /// by; `weighted` has room for a number per lane.
  void add(const Panel& panel, const PanelLenses& seen, const float* factor, float score_factor,
           float* weighted) const {
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
      for (std::int64_t c = cell_of(block * block_keys_, head_.kv_len, lenses_.map_columns);
           c <= last; ++c) {
        const float* from = seen.cells + (block + c) * kPanelLanes;
        for (std::int64_t v = 0; v < panel.vectors; ++v) {
          const Vector cell = hn::Load(d, from + v * kLanes);
          // What a row does not see stays 0, whatever its sum is.
          const auto none = hn::Eq(cell, hn::Zero(d));
          hn::Store(hn::IfThenZeroElse(none, hn::Mul(weight[v], cell)), d, weighted + v * kLanes);
        }
        if (lenses_.pool == Pool::kMax) {
          for (std::int64_t b = 0; b < count; ++b) raise(bands[b], weighted, c);
        } else {
          for (std::int64_t b = 0; b < count; ++b) bands[b].cells[c] += sum(bands[b], weighted);
        }
      }
    }
    for (std::int64_t b = 0; b < count; ++b) mark(panel, bands[b]);
  }

 private:
  /// Rows that are nan: from the first key that they see to the last.
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
    const std::int64_t q_len = head_.lenses.q_len;
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

  /// A row of the map if all its queries are in one chunk, else the chunk's share of it.
  float* cells_of(std::int64_t query, std::int64_t row, std::int64_t row_end) const {
    const HeadLenses& to = head_.lenses;
    const std::int64_t chunk_queries = lenses_.chunk_panels * kPanelLanes;
    const std::int64_t chunk = query / chunk_queries;
    const bool before = cell_begin(row, to.q_len, lenses_.map_rows) < chunk * chunk_queries;
    const bool after = row_end > (chunk + 1) * chunk_queries;
    if (!before && !after) return to.map + row * to.map_stride;
    return to.map_edges + (chunk * 2 + (before ? 0 : 1)) * lenses_.map_columns;
  }

  static HWY_INLINE float sum(const Band& band, const float* weighted) {
    const Floats d;
    if (band.end - band.begin == kLanes) {
      return hn::GetLane(hn::SumOfLanes(d, hn::Load(d, weighted + band.begin)));
    }
    float sum = 0.0f;
    for (std::int64_t lane = band.begin; lane < band.end; ++lane) sum += weighted[lane];
    return sum;
  }

  static HWY_INLINE void raise(const Band& band, const float* weighted, std::int64_t column) {
    float most = band.cells[column];
    for (std::int64_t lane = band.begin; lane < band.end; ++lane) {
      // A nan stays one.
      if (!(weighted[lane] <= most)) most = most == most ? weighted[lane] : most;
    }
    band.cells[column] = most;
  }

  const LensSetup& lenses_;
  const ForwardHead& head_;
  const std::int64_t block_keys_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_MAP_CELLS_INL_H_
