// SPDX-License-Identifier: Apache-2.0
//
// Internal interface between ceilings.cc and the loop for processors that multiply pairs of
// bfloat16 (ceilings_bf16.cc).

#pragma once

#include <cstdint>

namespace fovea::kernels {

/// Runs `rounds` rounds of independent vdpbf16ps instructions and returns their flop count. `used`
/// receives a result that depends on all of them. Returns 0 in a build without vdpbf16ps. Requires
/// bf16_dots_active().
double multiply_add_bf16(std::int64_t rounds, float& used);

}  // namespace fovea::kernels
