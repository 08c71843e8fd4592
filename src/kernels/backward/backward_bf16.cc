// SPDX-License-Identifier: Apache-2.0
//
// The backward pass (backward-inl.h) in bfloat16, compiled for processors with vdpbf16ps as
// bf16_target-inl.h says.

#include "kernels/backward/backward_bf16.h"

#include "kernels/simd/bf16_targets.h"
#include "kernels/simd/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/backward/backward_bf16.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/bf16_target-inl.h"

#if FOVEA_BF16_TARGET
#include "kernels/backward/backward-inl.h"
#include "kernels/tile/bf16_arithmetic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

std::size_t backward_bytes(const BackwardSetup& setup) {
  return BackwardScratch().lay_out(nullptr, backward_scratch_sizes<Bf16Arithmetic>(setup));
}

void run_backward_item(const BackwardSetup& setup, const BackwardItem& item, std::byte* scratch,
                       const std::stop_token& stop) {
  BackwardPass<Bf16Arithmetic>(setup, item, scratch).run(stop);
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#define FOVEA_HAS_BF16_BACKWARD
#endif

#if HWY_ONCE
namespace fovea::kernels {

#ifdef FOVEA_HAS_BF16_BACKWARD

bool has_bf16_backward(const BackwardSetup& setup) {
  return setup.forward.types.all(DType::kBFloat16) && setup.grad_context == DType::kBFloat16 &&
         bf16_dots_active();
}

std::size_t bf16_backward_scratch_bytes(const BackwardSetup& setup) {
  return N_AVX3_BF16::backward_bytes(setup);
}

void bf16_backward_item(const BackwardSetup& setup, const BackwardItem& item, std::byte* scratch,
                        const std::stop_token& stop) {
  N_AVX3_BF16::run_backward_item(setup, item, scratch, stop);
}

#else

bool has_bf16_backward(const BackwardSetup&) { return false; }
std::size_t bf16_backward_scratch_bytes(const BackwardSetup&) { return 0; }
void bf16_backward_item(const BackwardSetup&, const BackwardItem&, std::byte*,
                        const std::stop_token&) {}

#endif

}  // namespace fovea::kernels
#endif
