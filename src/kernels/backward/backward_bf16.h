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

/// Returns the entry points that use bfloat16 dot products. Returns null unless the processor has
/// the instructions, the active target allows them, and all inputs and the gradient of the context
/// are bfloat16.
const BackwardFunctions* bf16_backward(const BackwardSetup& setup);

}  // namespace fovea::kernels
