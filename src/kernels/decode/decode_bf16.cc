// SPDX-License-Identifier: Apache-2.0
//
// Decoding (decode-inl.h) in bfloat16, compiled for processors with vdpbf16ps as bf16_target-inl.h
// says.

#include "kernels/decode/decode_bf16.h"

#include "kernels/simd/bf16_targets.h"
#include "kernels/simd/target.h"

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

std::size_t decode_scratch_bytes(const DecodeSetup& setup) {
  return DecodeScratch().lay_out<Bf16Rows>(nullptr, setup);
}

void run_decode_item(const DecodeSetup& setup, const DecodeItem& item, const DecodePart& part,
                     std::byte* scratch, const std::stop_token& stop) {
  DecodePass<Bf16Rows>(setup, item, scratch).run(part, stop);
}

void run_decode_weights_item(const DecodeSetup& setup, const DecodeItem& item,
                             const DecodeWeights& weights, std::byte* scratch,
                             const std::stop_token& stop) {
  DecodePass<Bf16Rows>(setup, item, scratch).find_weights(weights, stop);
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#define FOVEA_HAS_BF16_DECODE
#endif

#if HWY_ONCE
namespace fovea::kernels {

#ifdef FOVEA_HAS_BF16_DECODE

bool has_bf16_decode(const DecodeSetup& setup) {
  return setup.types.all(DType::kBFloat16) && (setup.cached || setup.most_rows_of_head() > 1) &&
         bf16_dots_active();
}

std::size_t bf16_decode_scratch_bytes(const DecodeSetup& setup) {
  return N_AVX3_BF16::decode_scratch_bytes(setup);
}

void bf16_decode_item(const DecodeSetup& setup, const DecodeItem& item, const DecodePart& part,
                      std::byte* scratch, const std::stop_token& stop) {
  N_AVX3_BF16::run_decode_item(setup, item, part, scratch, stop);
}

void bf16_decode_weights_item(const DecodeSetup& setup, const DecodeItem& item,
                              const DecodeWeights& weights, std::byte* scratch,
                              const std::stop_token& stop) {
  N_AVX3_BF16::run_decode_weights_item(setup, item, weights, scratch, stop);
}

#else

bool has_bf16_decode(const DecodeSetup&) { return false; }
std::size_t bf16_decode_scratch_bytes(const DecodeSetup&) { return 0; }
void bf16_decode_item(const DecodeSetup&, const DecodeItem&, const DecodePart&, std::byte*,
                      const std::stop_token&) {}
void bf16_decode_weights_item(const DecodeSetup&, const DecodeItem&, const DecodeWeights&,
                              std::byte*, const std::stop_token&) {}

#endif

}  // namespace fovea::kernels
#endif
