// SPDX-License-Identifier: Apache-2.0
//
// Internal interface between backward.cc and the backward pass for the tile unit, in hardware
// (backward_amx.cc) and emulated (backward_amx_emulated.cc).

#pragma once

#include "kernels/backward/backward_bf16.h"

namespace fovea::kernels {

/// Return the entry points for the tile unit, or null if other passes are faster for these types.
/// Call the first only if tile_unit_active() is kHardware, the second only if it is kEmulated.
const BackwardFunctions* amx_backward(const BackwardSetup& setup);
const BackwardFunctions* emulated_amx_backward(const BackwardSetup& setup);

}  // namespace fovea::kernels
