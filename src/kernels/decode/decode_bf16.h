// SPDX-License-Identifier: Apache-2.0
//
// Decoding on processors with bfloat16 dot products (decode_bf16.cc). Used only by decode.cc, which
// dispatches to it.

#pragma once

#include <cstddef>
#include <stop_token>

#include "kernels/decode/decode.h"

namespace fovea::kernels {

/// Entry points of one arithmetic, with the signatures of decode_scratch_bytes, decode_item and
/// decode_weights_item.
struct DecodeFunctions {
  std::size_t (*scratch_bytes)(const DecodeSetup& setup);
  void (*item)(const DecodeSetup& setup, const DecodeItem& item, const DecodePart& part,
               std::byte* scratch, const std::stop_token& stop);
  void (*weights_item)(const DecodeSetup& setup, const DecodeItem& item,
                       const DecodeWeights& weights, std::byte* scratch,
                       const std::stop_token& stop);
};

/// Return the entry points that use bfloat16 dot products, for bfloat16 inputs, or null if they are
/// not compiled. Call those of `hardware` only if bf16_dots_active() is kHardware, and those of
/// `emulated` only if it is kEmulated.
namespace hardware {
const DecodeFunctions* bf16_decode();
}
namespace emulated {
const DecodeFunctions* bf16_decode();
}

/// Returns the entry points that use bfloat16 dot products if the active target has these and all
/// inputs are bfloat16, else null.
const DecodeFunctions* bf16_decode(const DecodeSetup& setup);

}  // namespace fovea::kernels
