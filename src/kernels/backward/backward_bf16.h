// SPDX-License-Identifier: Apache-2.0
//
// The backward pass on processors with bfloat16 dot products (backward_bf16.cc). Used only by
// backward.cc, which dispatches to it.

#pragma once

#include <cstddef>
#include <stop_token>

#include "kernels/backward/backward.h"

namespace fovea::kernels {

/// The implementations of backward_scratch_bytes and backward_item for one arithmetic, and the
/// sizes that it asks for.
struct BackwardFunctions {
  std::size_t (*scratch_bytes)(const BackwardSetup& setup);
  void (*item)(const BackwardSetup& setup, const BackwardItem& item, std::byte* scratch,
               const std::stop_token& stop);
  BackwardSizes sizes;
};

/// Returns the entry points in float32 arithmetic, for all types, of the active target.
const BackwardFunctions& float_backward();

/// Return the entry points that use bfloat16 dot products, for inputs and a gradient of the context
/// in bfloat16, or null if they are not compiled. Call those of `hardware` only if
/// bf16_dots_active() is kHardware, and those of `emulated` only if it is kEmulated.
namespace hardware {
const BackwardFunctions* bf16_backward();
}
namespace emulated {
const BackwardFunctions* bf16_backward();
}

}  // namespace fovea::kernels
