// SPDX-License-Identifier: Apache-2.0
//
// Weights found again on processors that multiply pairs of bfloat16 (weights_bf16.cc); for
// weights.cc, which has the rest.

#pragma once

#include <cstddef>
#include <stop_token>

#include "kernels/weights/weights.h"

namespace fovea::kernels {

/// The entry points of one arithmetic, as weights_scratch_bytes and weights_item.
struct WeightsFunctions {
  std::size_t (*scratch_bytes)(const WeightsSetup& setup);
  void (*item)(const WeightsSetup& setup, const WeightsItem& item, std::byte* scratch,
               const std::stop_token& stop);
};

/// Returns the entry points that multiply pairs of bfloat16; null unless the processor has the
/// instructions, the active target allows them, and queries and keys are bfloat16.
const WeightsFunctions* bf16_weights(const WeightsSetup& setup);

}  // namespace fovea::kernels
