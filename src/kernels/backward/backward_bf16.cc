// SPDX-License-Identifier: Apache-2.0
//
// The backward pass (backward-inl.h) in bfloat16, compiled for processors with vdpbf16ps (see
// bf16_target-inl.h).

#include "kernels/backward/backward_bf16.h"

#include "kernels/simd/bf16_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/backward/backward_bf16.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/bf16_target-inl.h"

#if FOVEA_BF16_TARGET
#include "kernels/backward/backward-inl.h"
#include "kernels/backward/row_products-inl.h"
#include "kernels/tile/bf16_arithmetic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {
namespace {

using Products = RowProducts<Bf16Arithmetic>;

std::size_t scratch_bytes(const BackwardSetup& setup) {
  return BackwardScratch().lay_out(nullptr, backward_scratch_sizes<Products>(setup));
}

void run_item(const BackwardSetup& setup, const BackwardItem& item, std::byte* scratch,
              const std::stop_token& stop) {
  BackwardPass<Products>(setup, item, scratch).run(stop);
}

constexpr BackwardFunctions kBackwardFunctions{
    .scratch_bytes = &scratch_bytes,
    .item = &run_item,
    .sizes = {.queries = HeadPass<Products>::kQueries, .keys_multiple = kTileRows}};

}  // namespace
}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#define FOVEA_HAS_BF16_BACKWARD
#endif

#if HWY_ONCE
namespace fovea::kernels::FOVEA_UNITS {

const BackwardFunctions* bf16_backward() {
#ifdef FOVEA_HAS_BF16_BACKWARD
  return &FOVEA_BF16_NAMESPACE::kBackwardFunctions;
#else
  return nullptr;
#endif
}

}  // namespace fovea::kernels::FOVEA_UNITS
#endif
