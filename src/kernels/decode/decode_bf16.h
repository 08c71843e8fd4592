// SPDX-License-Identifier: Apache-2.0
//
// Decoding on processors that multiply pairs of bfloat16 (decode_bf16.cc); for decode.cc, which has
// the rest.

#pragma once

#include <cstddef>
#include <stop_token>

#include "kernels/decode/decode.h"

namespace fovea::kernels {

/// Whether the processor has the instructions, the target in use allows them, all inputs are
/// bfloat16, and arithmetic counts: several queries share the keys, or these lie in a cache. One
/// query alone waits for memory, and better so in floats.
bool has_bf16_decode(const DecodeSetup& setup);

/// As those without bf16 in their names; to be called where has_bf16_decode() only.
std::size_t bf16_decode_scratch_bytes(const DecodeSetup& setup);
void bf16_decode_item(const DecodeSetup& setup, const DecodeItem& item, const DecodePart& part,
                      std::byte* scratch, const std::stop_token& stop);
void bf16_decode_weights_item(const DecodeSetup& setup, const DecodeItem& item,
                              const DecodeWeights& weights, std::byte* scratch,
                              const std::stop_token& stop);

}  // namespace fovea::kernels
