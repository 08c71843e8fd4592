// SPDX-License-Identifier: Apache-2.0
//
// Decoding (decode-inl.h) in bfloat16, compiled for processors with vdpbf16ps (see
// bf16_target-inl.h).

#include "kernels/decode/decode_bf16.h"

#include "kernels/simd/bf16_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/decode/decode_bf16.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/bf16_target-inl.h"

#if FOVEA_BF16_TARGET
#include "kernels/decode/bf16_rows-inl.h"
#include "kernels/decode/decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {
namespace {

std::size_t scratch_bytes(const DecodeSetup& setup) {
  return DecodeScratch().lay_out<Bf16Rows>(nullptr, setup);
}

void run_item(const DecodeSetup& setup, const DecodeItem& item, const DecodePart& part,
              std::byte* scratch, const std::stop_token& stop) {
  DecodePass<Bf16Rows>(setup, item, scratch).run(part, stop);
}

void run_weights_item(const DecodeSetup& setup, const DecodeItem& item,
                      const DecodeWeights& weights, std::byte* scratch,
                      const std::stop_token& stop) {
  DecodePass<Bf16Rows>(setup, item, scratch).find_weights(weights, stop);
}

constexpr DecodeFunctions kDecodeFunctions{&scratch_bytes, &run_item, &run_weights_item};

}  // namespace
}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#define FOVEA_HAS_BF16_DECODE
#endif

#if HWY_ONCE
namespace fovea::kernels::FOVEA_UNITS {

const DecodeFunctions* bf16_decode() {
#ifdef FOVEA_HAS_BF16_DECODE
  return &FOVEA_BF16_NAMESPACE::kDecodeFunctions;
#else
  return nullptr;
#endif
}

}  // namespace fovea::kernels::FOVEA_UNITS
#endif
