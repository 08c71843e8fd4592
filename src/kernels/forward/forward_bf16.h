// SPDX-License-Identifier: Apache-2.0
//
// The forward pass on processors that multiply pairs of bfloat16 (forward_bf16.cc); for forward.cc,
// which has the rest.

#pragma once

#include <cstddef>
#include <stop_token>

#include "kernels/forward/forward.h"

namespace fovea::kernels {

/// Whether the processor has the instructions, the target in use allows them, and all inputs are
/// bfloat16.
bool has_bf16_forward(const ForwardSetup& setup);

/// As those without bf16 in their names; to be called where has_bf16_forward() only.
std::size_t bf16_forward_scratch_bytes(const ForwardSetup& setup);
void bf16_forward_item(const ForwardSetup& setup, const ForwardItem& item, const ForwardItem* next,
                       std::byte* scratch, const std::stop_token& stop);

}  // namespace fovea::kernels
