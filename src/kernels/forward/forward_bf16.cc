// SPDX-License-Identifier: Apache-2.0
//
// The bfloat16 forward pass (forward_bf16.h), compiled for processors with vdpbf16ps
// (bf16_target-inl.h).

#include "kernels/forward/forward_bf16.h"

#include "kernels/simd/bf16_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/forward/forward_bf16.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/bf16_target-inl.h"

#if FOVEA_BF16_TARGET
#include "kernels/forward/forward-inl.h"
#include "kernels/tile/bf16_arithmetic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {
namespace {

using Block = KeyBlock<Bf16Arithmetic>;

std::size_t scratch_bytes(const ForwardSetup& setup) {
  return setup.lenses.any() ? item_scratch_bytes<Block, ItemLenses<Bf16Arithmetic>>(setup)
                            : item_scratch_bytes<Block, NoLenses>(setup);
}

void run_item(const ForwardSetup& setup, const ForwardItem& item, const ForwardItem* next,
              std::byte* scratch, const std::stop_token& stop) {
  if (setup.lenses.any()) {
    ItemPass<Block, ItemLenses<Bf16Arithmetic>>(setup, item, next, scratch).run(stop);
  } else {
    ItemPass<Block, NoLenses>(setup, item, next, scratch).run(stop);
  }
}

constexpr ForwardFunctions kForwardFunctions{.scratch_bytes = &scratch_bytes,
                                             .item = &run_item,
                                             .panel_lanes = kPanelLanes,
                                             .in_place = false,
                                             .number_bytes = sizeof(BFloat16)};

}  // namespace
}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#define FOVEA_HAS_BF16_FORWARD
#endif

#if HWY_ONCE
namespace fovea::kernels::FOVEA_UNITS {

const ForwardFunctions* bf16_forward() {
#ifdef FOVEA_HAS_BF16_FORWARD
  return &FOVEA_BF16_NAMESPACE::kForwardFunctions;
#else
  return nullptr;
#endif
}

}  // namespace fovea::kernels::FOVEA_UNITS
#endif
