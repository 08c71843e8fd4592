// SPDX-License-Identifier: Apache-2.0
//
// Recomputed weights (weights-inl.h), compiled once per SIMD target, and the runtime dispatch to
// the active target.

#include "fovea/simd_targets.h"  // before Highway

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/weights/weights.cc"
#include <hwy/foreach_target.h>
// The include above compiles the rest of this file once per SIMD target.

#include <hwy/highway.h>

#include "kernels/simd/target.h"
#include "kernels/tile/float_arithmetic-inl.h"
#include "kernels/weights/weights-inl.h"
#include "kernels/weights/weights.h"
#include "kernels/weights/weights_bf16.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

std::size_t WeightsScratchBytes(const WeightsSetup& setup) {
  return WeightsScratch().lay_out<FloatArithmetic>(nullptr, setup);
}

void RunWeightsItem(const WeightsSetup& setup, const WeightsItem& item, std::byte* scratch,
                    const std::stop_token& stop) {
  WeightsPass<FloatArithmetic>(setup, item, scratch).run(stop);
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::kernels {

HWY_EXPORT(WeightsScratchBytes);
HWY_EXPORT(RunWeightsItem);

namespace {

const WeightsFunctions* bf16_functions(const WeightsSetup& setup) {
  if (!setup.types.all(DType::kBFloat16)) return nullptr;
  return functions_of(bf16_dots_active(), hardware::bf16_weights, emulated::bf16_weights);
}

}  // namespace

std::size_t weights_scratch_bytes(const WeightsSetup& setup) {
  if (const auto* bf16 = bf16_functions(setup)) return bf16->scratch_bytes(setup);
  return HWY_DYNAMIC_DISPATCH(WeightsScratchBytes)(setup);
}

void weights_item(const WeightsSetup& setup, const WeightsItem& item, std::byte* scratch,
                  const std::stop_token& stop) {
  if (const auto* bf16 = bf16_functions(setup)) return bf16->item(setup, item, scratch, stop);
  HWY_DYNAMIC_DISPATCH(RunWeightsItem)(setup, item, scratch, stop);
}

}  // namespace fovea::kernels
#endif
