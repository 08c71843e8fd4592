// SPDX-License-Identifier: Apache-2.0
//
// The backward pass on processors that multiply pairs of bfloat16 (backward_bf16.cc); for
// backward.cc, which has the rest.

#pragma once

#include <cstddef>
#include <stop_token>

#include "kernels/backward/backward.h"

namespace fovea::kernels {

/// As those without bf16 in their names; to be called where has_bf16_backward() only.
std::size_t bf16_backward_scratch_bytes(const BackwardSetup& setup);
void bf16_backward_item(const BackwardSetup& setup, const BackwardItem& item, std::byte* scratch,
                        const std::stop_token& stop);

}  // namespace fovea::kernels
