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
#include "kernels/simd/flush_to_zero.h"
#include "kernels/simd/target.h"
#include "kernels/tile/float_arithmetic-inl.h"
#include "problem/problem_shape.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

std::int64_t PanelLanes() { return kPanelLanes; }
std::int64_t VectorLanes() { return kLanes; }

template <class Lenses>
void run_item(const ForwardSetup& setup, const ForwardItem& item, const ForwardItem* next,
              std::byte* scratch, const std::stop_token& stop) {
  if (item.in_place) {
    ItemPass<KeyRows, Lenses> pass(setup, item, next, scratch);
    pass.run(stop);
    if (pass.keys().contexts_are_finite()) return;
    ItemPass<KeyRows, NoLenses> again(setup, item, next, scratch);  // lenses do not show values
    again.keys().set_doubtful_apart();
    again.run(stop);
  } else {
    ItemPass<KeyBlock<FloatArithmetic>, Lenses>(setup, item, next, scratch).run(stop);
  }
}

std::size_t ScratchBytes(const ForwardSetup& setup) {
  // No part of the scratch memory is larger for KeyBlock.
  return setup.lenses.any() ? item_scratch_bytes<KeyRows, ItemLenses<FloatArithmetic>>(setup)
                            : item_scratch_bytes<KeyRows, NoLenses>(setup);
}

void RunItem(const ForwardSetup& setup, const ForwardItem& item, const ForwardItem* next,
             std::byte* scratch, const std::stop_token& stop) {
  // With biases, weights of keys far from a query may approach 2^-126.
  const FlushToZero flush(has_bias(setup.options->score));
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
HWY_EXPORT(VectorLanes);
HWY_EXPORT(ScratchBytes);
HWY_EXPORT(RunItem);

std::int64_t panel_lanes() { return HWY_DYNAMIC_DISPATCH(PanelLanes)(); }

const ForwardFunctions& float_forward() {
  static const ForwardFunctions functions{
      .scratch_bytes =
          [](const ForwardSetup& setup) { return HWY_DYNAMIC_DISPATCH(ScratchBytes)(setup); },
      .item =
          [](const ForwardSetup& setup, const ForwardItem& item, const ForwardItem* next,
             std::byte* scratch, const std::stop_token& stop) {
            HWY_DYNAMIC_DISPATCH(RunItem)(setup, item, next, scratch, stop);
          },
      .panel_lanes = panel_lanes(),
      .in_place = true,
      .number_bytes = sizeof(float)};
  return functions;
}

namespace {

const ForwardFunctions& functions_for(const ForwardSetup& setup) {
  const ForwardFunctions* special =
      functions_of(tile_unit_active(), hardware::amx_forward, emulated::amx_forward, setup);
  if (special == nullptr && setup.types.all(DType::kBFloat16)) {
    special = functions_of(bf16_dots_active(), hardware::bf16_forward, emulated::bf16_forward);
  }
  return special != nullptr ? *special : float_forward();
}

}  // namespace

ForwardSizes forward_sizes(const ForwardSetup& setup) {
  const ForwardFunctions& functions = functions_for(setup);
  static const std::int64_t vector = HWY_DYNAMIC_DISPATCH(VectorLanes)();
  static const std::int64_t lanes = panel_lanes();
  return {functions.panel_lanes,
          functions.in_place ? lanes : functions.panel_lanes,
          functions.in_place ? vector : 0,
          functions.number_bytes,
          functions.block_keys,
          functions.item_panels};
}

std::size_t forward_scratch_bytes(const ForwardSetup& setup) {
  return functions_for(setup).scratch_bytes(setup);
}

void forward_item(const ForwardSetup& setup, const ForwardItem& item, const ForwardItem* next,
                  std::byte* scratch, const std::stop_token& stop) {
  functions_for(setup).item(setup, item, next, scratch, stop);
}

}  // namespace fovea::kernels
#endif
