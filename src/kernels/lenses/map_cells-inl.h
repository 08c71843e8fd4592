// SPDX-License-Identifier: Apache-2.0
//
// Reduces a panel's sums, one per query and map column, to the cells of the map (lenses-inl.h,
// amx_lenses-inl.h).

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
#include "kernels/tile/pack-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// The rows of a panel that belong to one row of the map.
struct Band {
  std::int64_t begin, end;  // lanes
  float* cells;             // row of the map, or of map_edges
};

class MapCells {
 public:
  MapCells(const LensSetup& lenses, const ForwardHead& head, std::int64_t block_keys)
      : lenses_(lenses), head_(head), block_keys_(block_keys) {}

  /// Writes the first key of each column, and the largest number after the last: padding keys are
  /// part of the last column, to which they add nothing.
  void find_columns(std::int64_t* begins) const {
    const std::int64_t columns = lenses_.map_columns.cells();
    for (std::int64_t c = 0; c < columns; ++c) begins[c] = lenses_.map_columns.begin(c);
    begins[columns] = std::numeric_limits<std::int64_t>::max();
  }

  /// Adds the sums of a finished panel to the map. Weights are factor[lane] 2^(score - maximum).
  void add(const Panel& panel, const PanelLenses& seen, const float* factor,
           float score_factor) const {
    if (panel.keys_begin >= panel.keys_end) return;
    const Floats d;
    Band bands[kPanelLanes];
    const std::int64_t count = find_bands(panel, bands);
    const std::int64_t begin = panel.keys_begin / block_keys_;
    const std::int64_t end = (panel.keys_end + block_keys_ - 1) / block_keys_;
    // Some columns, of all blocks that have keys in them, with one query per lane.
    HWY_ALIGN float columns[kColumns * kPanelLanes] = {};
    std::int64_t first = column_of(begin * block_keys_);
    std::int64_t after = first;
    for (std::int64_t block = begin; block < end; ++block) {
      if (seen.block_seen[block] == 0) continue;
      const std::int64_t last_key = std::min((block + 1) * block_keys_, head_.kv_len) - 1;
      const std::int64_t last = column_of(last_key);
      Vector weight[kPanelVectors];
      for (std::int64_t v = 0; v < panel.vectors; ++v) {
        const std::int64_t lane = v * kLanes;
        const Vector then = hn::Load(d, seen.block_maximum + block * kPanelLanes + lane);
        const Vector below = hn::Sub(then, hn::Load(d, panel.maximum + lane));
        weight[v] = hn::Load(d, factor + lane);
        if (hn::AllTrue(d, hn::Eq(below, hn::Zero(d)))) continue;
        weight[v] = hn::Mul(weight[v], fovea::HWY_NAMESPACE::exp2_of_nonpositive(
                                           d, hn::Mul(hn::Set(d, score_factor), below)));
      }
      for (std::int64_t c = column_of(block * block_keys_); c <= last; ++c) {
        if (c - first >= kColumns) {
          add_columns(bands, count, columns, first, after);
          std::fill_n(columns, kColumns * kPanelLanes, 0.0f);
          first = c;
        }
        for (std::int64_t v = 0; v < panel.vectors; ++v) {
          const Vector x = hn::Load(d, seen.cells + (block + c) * kPanelLanes + v * kLanes);
          // Cells without visible keys stay 0, even if `weight` is not finite. Rows with NaN may
          // have NaN in cells that they do not see; mark() sets those that they see.
          const auto spoilt = hn::IsNaN(hn::Load(d, panel.sum + v * kLanes));
          const Vector here =
              hn::IfThenZeroElse(hn::Or(spoilt, hn::Eq(x, hn::Zero(d))), hn::Mul(weight[v], x));
          float* const to = columns + (c - first) * kPanelLanes + v * kLanes;
          hn::Store(pooled(d, hn::Load(d, to), here), d, to);
        }
        after = c + 1;
      }
    }
    add_columns(bands, count, columns, first, after);
    for (std::int64_t b = 0; b < count; ++b) mark(panel, bands[b]);
  }

 private:
  static constexpr std::int64_t kColumns = 16;

  std::int64_t column_of(std::int64_t key) const { return lenses_.map_columns.of(key); }
  template <class D>
  HWY_INLINE hn::Vec<D> pooled(D, hn::Vec<D> a, hn::Vec<D> b) const {
    return lenses_.pool == Pool::kMax ? hn::Max(a, b) : hn::Add(a, b);
  }

  /// Pools the columns [first, end) of each band's rows.
  void add_columns(const Band* bands, std::int64_t count, const float* columns, std::int64_t first,
                   std::int64_t end) const {
    const hn::CappedTag<float, kColumns> d;
    constexpr auto kWidth = static_cast<std::int64_t>(hn::MaxLanes(decltype(d)()));
    HWY_ALIGN float rows[kPanelLanes * kColumns];
    transpose(Numbers<float>{columns}, kPanelLanes, kColumns, kPanelLanes, rows, kColumns);
    for (std::int64_t b = 0; b < count; ++b) {
      HWY_ALIGN float cells[kColumns];
      for (std::int64_t c = 0; c < kColumns; c += kWidth) {
        const float* row = rows + bands[b].begin * kColumns + c;
        auto sum = hn::Load(d, row);
        for (std::int64_t lane = bands[b].begin + 1; lane < bands[b].end; ++lane) {
          row += kColumns;
          sum = pooled(d, sum, hn::Load(d, row));
        }
        hn::Store(sum, d, cells + c);
      }
      float* const to = bands[b].cells + first;
      for (std::int64_t c = 0; c < end - first; ++c) {
        to[c] = lenses_.pool == Pool::kMax ? std::max(to[c], cells[c]) : to[c] + cells[c];
      }
    }
  }

  /// Sets the cells of NaN rows to NaN, from the first visible key to the last.
  void mark(const Panel& panel, const Band& band) const {
    for (std::int64_t lane = band.begin; lane < band.end; ++lane) {
      if (!std::isnan(panel.sum[lane]) || panel.key_begin[lane] >= panel.key_end[lane]) continue;
      const std::int64_t first = column_of(panel.key_begin[lane]);
      const std::int64_t last = column_of(panel.key_end[lane] - 1);
      std::fill(band.cells + first, band.cells + last + 1, std::numeric_limits<float>::quiet_NaN());
    }
  }

  std::int64_t find_bands(const Panel& panel, Band* bands) const {
    std::int64_t count = 0;
    for (std::int64_t lane = 0; lane < panel.rows;) {
      const std::int64_t query = panel.first_query + lane;
      const std::int64_t row = lenses_.map_rows.of(query);
      const std::int64_t row_end = lenses_.map_rows.begin(row + 1);
      const std::int64_t end = std::min(panel.rows, lane + (row_end - query));
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
    const bool before = lenses_.map_rows.begin(row) < chunk * chunk_queries;
    const bool after = row_end > (chunk + 1) * chunk_queries;
    if (!before && !after) return to.map + row * to.map_stride;
    return to.map_edges + (chunk * 2 + (before ? 0 : 1)) * lenses_.map_columns.cells();
  }

  const LensSetup& lenses_;
  const ForwardHead& head_;
  const std::int64_t block_keys_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_LENSES_MAP_CELLS_INL_H_
