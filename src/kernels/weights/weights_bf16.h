// SPDX-License-Identifier: Apache-2.0
//
// Weights found again on processors that multiply pairs of bfloat16 (weights_bf16.cc); for
// weights.cc, which has the rest.

#pragma once

#include <cstddef>
#include <stop_token>

#include "kernels/weights/weights.h"

namespace fovea::kernels {

/// Whether the processor has the instructions, the target in use allows them, and queries and keys
/// are bfloat16.
bool has_bf16_weights(const WeightsSetup& setup);

/// As those without bf16 in their names; to be called where has_bf16_weights() only.
std::size_t bf16_weights_scratch_bytes(const WeightsSetup& setup);
void bf16_weights_item(const WeightsSetup& setup, const WeightsItem& item, std::byte* scratch,
                       const std::stop_token& stop);

}  // namespace fovea::kernels
