// SPDX-License-Identifier: Apache-2.0
//
// Internal interface between forward.cc and the forward pass for processors that multiply pairs of
// bfloat16 (forward_bf16.cc).

#pragma once

#include <cstddef>
#include <cstdint>
#include <stop_token>

#include "kernels/forward/forward.h"

namespace fovea::kernels {

/// The implementations of forward_scratch_bytes and forward_item for one arithmetic, and the sizes
/// that it asks for.
struct ForwardFunctions {
  std::size_t (*scratch_bytes)(const ForwardSetup& setup);
  void (*item)(const ForwardSetup& setup, const ForwardItem& item, const ForwardItem* next,
               std::byte* scratch, const std::stop_token& stop);
  std::int64_t panel_lanes;
  bool in_place;                // whether items in place have panels of float_forward()
  std::int64_t number_bytes;    // of a packed tensor element
  std::int64_t block_keys = 0;  // 0: any
  std::int64_t item_panels = 1;
};

/// Returns the entry points in float32 arithmetic, for all types, of the active target.
const ForwardFunctions& float_forward();

/// Return the entry points that multiply pairs of bfloat16, for bfloat16 inputs, or null if they
/// are not compiled. Call those of `hardware` only if bf16_dots_active() is kHardware, and those of
/// `emulated` only if it is kEmulated.
namespace hardware {
const ForwardFunctions* bf16_forward();
}
namespace emulated {
const ForwardFunctions* bf16_forward();
}

}  // namespace fovea::kernels
