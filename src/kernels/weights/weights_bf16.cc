// SPDX-License-Identifier: Apache-2.0
//
// Recomputed weights (weights-inl.h) in bfloat16, compiled for processors with vdpbf16ps (see
// bf16_target-inl.h).

#include "kernels/weights/weights_bf16.h"

#include "kernels/simd/bf16_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/weights/weights_bf16.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/bf16_target-inl.h"

#if FOVEA_BF16_TARGET
#include "kernels/tile/bf16_arithmetic-inl.h"
#include "kernels/weights/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {
namespace {

std::size_t scratch_bytes(const WeightsSetup& setup) {
  return WeightsScratch().lay_out<Bf16Arithmetic>(nullptr, setup);
}

void run_item(const WeightsSetup& setup, const WeightsItem& item, std::byte* scratch,
              const std::stop_token& stop) {
  WeightsPass<Bf16Arithmetic>(setup, item, scratch).run(stop);
}

constexpr WeightsFunctions kWeightsFunctions{&scratch_bytes, &run_item};

}  // namespace
}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#define FOVEA_HAS_BF16_WEIGHTS
#endif

#if HWY_ONCE
namespace fovea::kernels::FOVEA_UNITS {

const WeightsFunctions* bf16_weights() {
#ifdef FOVEA_HAS_BF16_WEIGHTS
  return &FOVEA_BF16_NAMESPACE::kWeightsFunctions;
#else
  return nullptr;
#endif
}

}  // namespace fovea::kernels::FOVEA_UNITS
#endif
