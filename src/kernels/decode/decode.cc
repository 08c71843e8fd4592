// SPDX-License-Identifier: Apache-2.0
//
// Decoding (decode-inl.h), compiled once per SIMD target.

#include "fovea/simd_targets.h"  // before Highway

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/decode/decode.cc"
#include <hwy/foreach_target.h>
// The include above compiles the rest of this file once per SIMD target.

#include <hwy/highway.h>

#include "kernels/decode/decode-inl.h"
#include "kernels/decode/decode.h"
#include "kernels/decode/decode_bf16.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

std::size_t DecodeScratchBytes(const DecodeSetup& setup) {
  return DecodeScratch().lay_out<FloatRows>(nullptr, setup);
}

void RunDecodeItem(const DecodeSetup& setup, const DecodeItem& item, const DecodePart& part,
                   std::byte* scratch, const std::stop_token& stop) {
  DecodePass<FloatRows>(setup, item, scratch).run(part, stop);
}

void RunDecodeWeightsItem(const DecodeSetup& setup, const DecodeItem& item,
                          const DecodeWeights& weights, std::byte* scratch,
                          const std::stop_token& stop) {
  DecodePass<FloatRows>(setup, item, scratch).find_weights(weights, stop);
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::kernels {

HWY_EXPORT(DecodeScratchBytes);
HWY_EXPORT(RunDecodeItem);
HWY_EXPORT(RunDecodeWeightsItem);

std::size_t decode_scratch_bytes(const DecodeSetup& setup) {
  if (const auto* bf16 = bf16_decode(setup)) return bf16->scratch_bytes(setup);
  return HWY_DYNAMIC_DISPATCH(DecodeScratchBytes)(setup);
}

void decode_item(const DecodeSetup& setup, const DecodeItem& item, const DecodePart& part,
                 std::byte* scratch, const std::stop_token& stop) {
  if (const auto* bf16 = bf16_decode(setup)) return bf16->item(setup, item, part, scratch, stop);
  HWY_DYNAMIC_DISPATCH(RunDecodeItem)(setup, item, part, scratch, stop);
}

void decode_weights_item(const DecodeSetup& setup, const DecodeItem& item,
                         const DecodeWeights& weights, std::byte* scratch,
                         const std::stop_token& stop) {
  if (const auto* bf16 = bf16_decode(setup)) {
    return bf16->weights_item(setup, item, weights, scratch, stop);
  }
  HWY_DYNAMIC_DISPATCH(RunDecodeWeightsItem)(setup, item, weights, scratch, stop);
}

}  // namespace fovea::kernels
#endif
