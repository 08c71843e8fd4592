// SPDX-License-Identifier: Apache-2.0
//
// Entry points of the forward pass for the tile unit.

#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "kernels/forward/forward-inl.h"
#include "kernels/forward/forward_bf16.h"
#include "kernels/lenses/amx_lenses-inl.h"
#include "kernels/simd/flush_to_zero.h"
#include "kernels/simd/tile_unit-inl.h"
#include "kernels/tile/amx_keys-inl.h"
#include "kernels/tile/amx_numbers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

inline std::size_t amx_bf16_scratch_bytes(const ForwardSetup& setup) {
  using Keys = AmxKeys<AmxBf16>;
  return setup.lenses.any() ? item_scratch_bytes<Keys, AmxLenses<AmxBf16>>(setup)
                            : item_scratch_bytes<Keys, NoLenses>(setup);
}

inline void amx_bf16_item(const ForwardSetup& setup, const ForwardItem& item,
                          const ForwardItem* next, std::byte* scratch,
                          const std::stop_token& stop) {
  const TileUnitSession session;
  const FlushToZero flush;
  if (setup.lenses.any()) {
    ItemPass<AmxKeys<AmxBf16>, AmxLenses<AmxBf16>>(setup, item, next, scratch).run(stop);
  } else {
    ItemPass<AmxKeys<AmxBf16>, NoLenses>(setup, item, next, scratch).run(stop);
  }
}

/// Returns the setup for float_forward(), for queries that the tile unit does not compute.
inline ForwardSetup float_setup(const ForwardSetup& setup) {
  ForwardSetup other = setup;
  other.block_keys = setup.usual_block_keys;
  return other;
}

inline std::size_t amx_float_scratch_bytes(const ForwardSetup& setup) {
  return item_scratch_bytes<AmxKeys<AmxFloat>, NoLenses>(setup) +
         float_forward().scratch_bytes(float_setup(setup));
}

inline void amx_float_item(const ForwardSetup& setup, const ForwardItem& item,
                           const ForwardItem* next, std::byte* scratch,
                           const std::stop_token& stop) {
  std::byte* const other_scratch = scratch + item_scratch_bytes<AmxKeys<AmxFloat>, NoLenses>(setup);
  const auto redo = [&](std::int64_t q_begin, std::int64_t q_end) {
    ForwardItem part = item;
    part.q_begin = q_begin;
    part.q_end = q_end;
    float_forward().item(float_setup(setup), part, nullptr, other_scratch, stop);
  };
  if (item.in_place) return redo(item.q_begin, item.q_end);
  ItemPass<AmxKeys<AmxFloat>, NoLenses> pass(setup, item, next, scratch);
  {
    const TileUnitSession session;
    const FlushToZero flush;
    pass.run(stop);
  }
  if (stop.stop_requested()) return;
  // At the edge of a mask, the bits of a row depend on the rows of its panel. Items cut runs of
  // refused rows where the number of threads says, so panels begin at multiples of their lanes.
  const std::int64_t lanes = float_forward().panel_lanes;
  pass.for_refused([&](std::int64_t q_begin, std::int64_t q_end) {
    const std::int64_t whole = std::min((q_begin + lanes - 1) / lanes * lanes, q_end);
    if (q_begin < whole) redo(q_begin, whole);
    if (whole < q_end) redo(whole, q_end);
  });
}

/// In float32, a product of the tile unit has 32 dimensions. Calls with lenses use FMA, because a
/// map would also contain rows that the tile unit refuses.
inline bool amx_pays_in_float(const ForwardSetup& setup) {
  return setup.types.all(DType::kFloat32) && !setup.lenses.any() && setup.head_dim >= 16 &&
         setup.options->float32_by_tiles;
}

inline const ForwardFunctions* amx_functions(const ForwardSetup& setup) {
  static constexpr ForwardFunctions kBf16{.scratch_bytes = &amx_bf16_scratch_bytes,
                                          .item = &amx_bf16_item,
                                          .panel_lanes = kPanelLanes,
                                          .in_place = false,
                                          .number_bytes = 2 * AmxBf16::kParts,
                                          .block_keys = AmxBf16::kBlockKeys};
  // Items end where panels of float_forward() end, too.
  static const ForwardFunctions kFloat{
      .scratch_bytes = &amx_float_scratch_bytes,
      .item = &amx_float_item,
      .panel_lanes = kPanelLanes,
      .in_place = true,
      .number_bytes = 2 * AmxFloat::kParts,
      .block_keys = AmxFloat::kBlockKeys,
      .item_panels = std::lcm(kPanelLanes, panel_lanes()) / kPanelLanes};
  if (setup.types.all(DType::kBFloat16)) return &kBf16;
  return amx_pays_in_float(setup) ? &kFloat : nullptr;
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
