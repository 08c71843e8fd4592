// SPDX-License-Identifier: Apache-2.0
//
// Internal interface between forward.cc and the forward pass for the tile unit, in hardware
// (forward_amx.cc) and emulated (forward_amx_emulated.cc).

#pragma once

#include "kernels/forward/forward_bf16.h"

namespace fovea::kernels {

/// Return the entry points for the tile unit, or null if other passes are faster for these types.
/// Call the first only if tile_unit_active() is kHardware, the second only if it is kEmulated.
const ForwardFunctions* amx_forward(const ForwardSetup& setup);
const ForwardFunctions* emulated_amx_forward(const ForwardSetup& setup);

}  // namespace fovea::kernels
