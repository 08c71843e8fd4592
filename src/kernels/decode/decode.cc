// SPDX-License-Identifier: Apache-2.0
//
// Decoding (decode-inl.h), compiled once per SIMD target.

#include <algorithm>

#include "fovea/simd_targets.h"  // before Highway

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/decode/decode.cc"
#include <hwy/foreach_target.h>
// The include above compiles the rest of this file once per SIMD target.

#include <hwy/highway.h>

#include "kernels/decode/decode-inl.h"
#include "kernels/decode/decode.h"
#include "kernels/decode/decode_bf16.h"
#include "kernels/simd/target.h"

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

const DecodeFunctions* bf16_decode(const DecodeSetup& setup) {
  if (!setup.types.all(DType::kBFloat16)) return nullptr;
  return functions_of(bf16_dots_active(), hardware::bf16_decode, emulated::bf16_decode);
}

namespace {

/// Returns the entry points that use bfloat16 dot products if they are faster for the item: several
/// rows share the keys, or the keys fit in a CPU cache. A single row is otherwise memory-bound, and
/// faster in float32. Other packed sequences of the call do not affect the choice.
const DecodeFunctions* faster_bf16_decode(const DecodeSetup& setup, const DecodeItem& item) {
  return item.cached || item.rows_of_head(setup.group) > 1 ? bf16_decode(setup) : nullptr;
}

}  // namespace

std::size_t decode_scratch_bytes(const DecodeSetup& setup) {
  const std::size_t bytes = HWY_DYNAMIC_DISPATCH(DecodeScratchBytes)(setup);
  const auto* const bf16 = bf16_decode(setup);
  return bf16 != nullptr ? std::max(bytes, bf16->scratch_bytes(setup)) : bytes;
}

void decode_item(const DecodeSetup& setup, const DecodeItem& item, const DecodePart& part,
                 std::byte* scratch, const std::stop_token& stop) {
  if (const auto* bf16 = faster_bf16_decode(setup, item)) {
    return bf16->item(setup, item, part, scratch, stop);
  }
  HWY_DYNAMIC_DISPATCH(RunDecodeItem)(setup, item, part, scratch, stop);
}

void decode_weights_item(const DecodeSetup& setup, const DecodeItem& item,
                         const DecodeWeights& weights, std::byte* scratch,
                         const std::stop_token& stop) {
  if (const auto* bf16 = faster_bf16_decode(setup, item)) {
    return bf16->weights_item(setup, item, weights, scratch, stop);
  }
  HWY_DYNAMIC_DISPATCH(RunDecodeWeightsItem)(setup, item, weights, scratch, stop);
}

}  // namespace fovea::kernels
#endif
