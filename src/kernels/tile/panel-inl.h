// SPDX-License-Identifier: Apache-2.0
//
// Panels of queries: loading them for the products, and the sizes of the scratch memory.

#if defined(FOVEA_KERNELS_TILE_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_PANEL_INL_H_
#undef FOVEA_KERNELS_TILE_PANEL_INL_H_
#else
#define FOVEA_KERNELS_TILE_PANEL_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/simd/rows_of.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"
#include "kernels/tile/stages-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Returns the number of tile steps for `count` dimensions or keys.
template <class Arithmetic>
constexpr std::int64_t steps(std::int64_t count) {
  return (count + Arithmetic::kPerStep - 1) / Arithmetic::kPerStep;
}

/// Sets the lanes of a [steps][kPanelLanes] buffer that have no row to zero; their results are not
/// used.
template <class Arithmetic>
void clear_lanes_without_row(const Panel& panel, std::int64_t dim, float* to) {
  if (panel.rows == panel.vectors * kLanes) return;
  for (std::int64_t c = 0; c < steps<Arithmetic>(dim); ++c) {
    std::fill(to + c * kPanelLanes + panel.rows, to + c * kPanelLanes + panel.vectors * kLanes,
              0.0f);
  }
}

/// Loads the panel's rows of a tensor that has one row per query into a [steps][kPanelLanes]
/// buffer. Multiplies the rows by `factor` (Bf16Arithmetic applies only its sign).
template <class Arithmetic>
void load_panel(const InputRows& rows, const Panel& panel, std::int64_t dim, float factor,
                float* to) {
  clear_lanes_without_row<Arithmetic>(panel, dim, to);
  Arithmetic::load_queries(rows, panel.first_query, panel.rows, dim, factor, to);
}

/// Loads the panel's queries of a head, or of several heads, as load_panel() does.
template <class Arithmetic>
void load_queries(const ForwardHead& head, const Panel& panel, std::int64_t dim, float factor,
                  float* to) {
  clear_lanes_without_row<Arithmetic>(panel, dim, to);
  const std::int64_t first = panel.first_query;
  head.for_each_head(first, first + panel.rows, [&](std::int64_t row, std::int64_t count) {
    Arithmetic::load_queries(head.query_rows(row), head.query_of(row), count, dim, factor,
                             to + (row - first));
  });
}

template <class Arithmetic>
ForwardScratchSizes scratch_sizes(const ForwardSetup& setup) {
  const ScoreOptions& score = setup.options->score;
  return {.panels = setup.most_panels,
          .lanes = kPanelLanes,
          .tile_rows = kTileRows,
          .block_keys = setup.block_keys,
          .query_steps = steps<Arithmetic>(setup.head_dim),
          .block_steps = steps<Arithmetic>(setup.block_keys),
          .tiles = setup.block_keys / kTileRows,
          .value_tiles = tiles_of(setup.value_dim),
          .value_dim = setup.value_dim,
          .most_keys = setup.most_keys,
          .bias_keys = score.bias.defined() ? 2 * kBiasKeys : 0,
          .rows_of_mask = !setup.options->mask.allows_all(),
          .dropout = setup.options->dropout.probability > 0,
          .position_bias = score.alibi.has_value() || score.relative.has_value()};
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_PANEL_INL_H_
