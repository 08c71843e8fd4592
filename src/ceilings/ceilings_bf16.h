// SPDX-License-Identifier: Apache-2.0
//
// The ceiling of processors that multiply pairs of bfloat16 (ceilings_bf16.cc); for ceilings.cc,
// which has the rest.

#pragma once

#include <cstdint>

namespace fovea::kernels {

/// The flop of `rounds` rounds of independent vdpbf16ps, and in `used` a result of them; 0 in a
/// build that has none. To be called where bf16_dots_active() only.
double multiply_add_bf16(std::int64_t rounds, float& used);

}  // namespace fovea::kernels
