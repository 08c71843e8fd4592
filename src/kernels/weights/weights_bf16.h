// SPDX-License-Identifier: Apache-2.0
//
// Recomputed weights on processors with bfloat16 dot products (weights_bf16.cc). Used only by
// weights.cc, which dispatches to it.

#pragma once

#include <cstddef>
#include <stop_token>

#include "kernels/weights/weights.h"

namespace fovea::kernels {

/// Entry points of one arithmetic, with the signatures of weights_scratch_bytes and weights_item.
struct WeightsFunctions {
  std::size_t (*scratch_bytes)(const WeightsSetup& setup);
  void (*item)(const WeightsSetup& setup, const WeightsItem& item, std::byte* scratch,
               const std::stop_token& stop);
};

/// Return the entry points that use bfloat16 dot products, for queries and keys in bfloat16, or
/// null if they are not compiled. Call those of `hardware` only if bf16_dots_active() is kHardware,
/// and those of `emulated` only if it is kEmulated.
namespace hardware {
const WeightsFunctions* bf16_weights();
}
namespace emulated {
const WeightsFunctions* bf16_weights();
}

}  // namespace fovea::kernels
