// SPDX-License-Identifier: Apache-2.0
//
// Weights found again (weights-inl.h) in bfloat16, compiled for processors with vdpbf16ps as
// bf16_target-inl.h says.

#include "kernels/weights/weights_bf16.h"

#include "kernels/simd/bf16_targets.h"
#include "kernels/simd/target.h"

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

std::size_t weights_scratch(const WeightsSetup& setup) {
  return WeightsScratch().lay_out<Bf16Arithmetic>(nullptr, setup);
}

void run_weights(const WeightsSetup& setup, const WeightsItem& item, std::byte* scratch,
                 const std::stop_token& stop) {
  WeightsPass<Bf16Arithmetic>(setup, item, scratch).run(stop);
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#define FOVEA_HAS_BF16_WEIGHTS
#endif

#if HWY_ONCE
namespace fovea::kernels {

#ifdef FOVEA_HAS_BF16_WEIGHTS

bool has_bf16_weights(const WeightsSetup& setup) {
  return setup.types.all(DType::kBFloat16) && bf16_dots_active();
}

std::size_t bf16_weights_scratch_bytes(const WeightsSetup& setup) {
  return N_AVX3_BF16::weights_scratch(setup);
}

void bf16_weights_item(const WeightsSetup& setup, const WeightsItem& item, std::byte* scratch,
                       const std::stop_token& stop) {
  N_AVX3_BF16::run_weights(setup, item, scratch, stop);
}

#else

bool has_bf16_weights(const WeightsSetup&) { return false; }
std::size_t bf16_weights_scratch_bytes(const WeightsSetup&) { return 0; }
void bf16_weights_item(const WeightsSetup&, const WeightsItem&, std::byte*,
                       const std::stop_token&) {}

#endif

}  // namespace fovea::kernels
#endif
