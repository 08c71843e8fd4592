// SPDX-License-Identifier: Apache-2.0
//
// Decoding on processors that multiply pairs of bfloat16 (decode_bf16.cc); for decode.cc, which has
// the rest.

#pragma once

#include <cstddef>
#include <stop_token>

#include "kernels/decode/decode.h"

namespace fovea::kernels {

/// The entry points of one arithmetic, as decode_scratch_bytes, decode_item and
/// decode_weights_item.
struct DecodeFunctions {
  std::size_t (*scratch_bytes)(const DecodeSetup& setup);
  void (*item)(const DecodeSetup& setup, const DecodeItem& item, const DecodePart& part,
               std::byte* scratch, const std::stop_token& stop);
  void (*weights_item)(const DecodeSetup& setup, const DecodeItem& item,
                       const DecodeWeights& weights, std::byte* scratch,
                       const std::stop_token& stop);
};

/// Returns the entry points that multiply pairs of bfloat16; null unless the processor has the
/// instructions, the active target allows them, all inputs are bfloat16, and arithmetic is the
/// limit: several queries share the keys, or these lie in a cache. A single query waits for memory,
/// and is faster in float32.
const DecodeFunctions* bf16_decode(const DecodeSetup& setup);

}  // namespace fovea::kernels
