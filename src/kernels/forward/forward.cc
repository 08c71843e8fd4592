// SPDX-License-Identifier: Apache-2.0
//
// Entry points of the fused forward pass (forward.h), compiled once per SIMD target, and their
// dispatch.

#include "fovea/simd_targets.h"  // before Highway

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/forward/forward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/forward/forward-inl.h"
#include "kernels/forward/forward.h"
#include "kernels/forward/forward_amx.h"
#include "kernels/forward/forward_bf16.h"
#include "kernels/tile/float_arithmetic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

std::int64_t PanelLanes() { return kPanelLanes; }

template <class Lenses>
std::size_t scratch_bytes(const ForwardSetup& setup) {
  return std::max(item_scratch_bytes<KeyBlock<FloatArithmetic>, Lenses>(setup),
                  item_scratch_bytes<KeyRows, Lenses>(setup));
}
template <class Lenses>
void run_item(const ForwardSetup& setup, const ForwardItem& item, const ForwardItem* next,
              std::byte* scratch, const std::stop_token& stop) {
  if (item.in_place) {
    ItemPass<KeyRows, Lenses>(setup, item, next, scratch).run(stop);
  } else {
    ItemPass<KeyBlock<FloatArithmetic>, Lenses>(setup, item, next, scratch).run(stop);
  }
}

std::size_t ScratchBytes(const ForwardSetup& setup) {
  return setup.lenses.any() ? scratch_bytes<ItemLenses<FloatArithmetic>>(setup)
                            : scratch_bytes<NoLenses>(setup);
}

void RunItem(const ForwardSetup& setup, const ForwardItem& item, const ForwardItem* next,
             std::byte* scratch, const std::stop_token& stop) {
  if (setup.lenses.any()) {
    run_item<ItemLenses<FloatArithmetic>>(setup, item, next, scratch, stop);
  } else {
    run_item<NoLenses>(setup, item, next, scratch, stop);
  }
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::kernels {

HWY_EXPORT(PanelLanes);
HWY_EXPORT(ScratchBytes);
HWY_EXPORT(RunItem);

std::int64_t panel_lanes() { return HWY_DYNAMIC_DISPATCH(PanelLanes)(); }

namespace {

/// Returns the functions for these types that are compiled elsewhere; null if there are none.
const ForwardFunctions* other_forward(const ForwardSetup& setup) {
  if (const auto* amx = amx_forward(setup)) return amx;
  if (const auto* emulated = emulated_amx_forward(setup)) return emulated;
  return bf16_forward(setup);
}

}  // namespace

ForwardSizes forward_sizes(const ForwardSetup& setup) {
  const ForwardFunctions* const other = other_forward(setup);
  if (other == nullptr) return {.panel_lanes = panel_lanes(), .number_bytes = sizeof(float)};
  return {.panel_lanes = other->panel_lanes,
          .number_bytes = sizeof(BFloat16),
          .block_keys = other->block_keys};
}

std::size_t forward_scratch_bytes(const ForwardSetup& setup) {
  if (const auto* other = other_forward(setup)) return other->scratch_bytes(setup);
  return HWY_DYNAMIC_DISPATCH(ScratchBytes)(setup);
}

void forward_item(const ForwardSetup& setup, const ForwardItem& item, const ForwardItem* next,
                  std::byte* scratch, const std::stop_token& stop) {
  if (const auto* other = other_forward(setup)) {
    return other->item(setup, item, next, scratch, stop);
  }
  HWY_DYNAMIC_DISPATCH(RunItem)(setup, item, next, scratch, stop);
}

}  // namespace fovea::kernels
#endif
