// SPDX-License-Identifier: Apache-2.0
//
// Internal interface between forward.cc and the forward pass for the tile unit (forward_amx.cc).

#pragma once

#include "kernels/forward/forward_bf16.h"

namespace fovea::kernels {

/// Return the entry points for the tile unit, or null if other passes are faster for these types.
/// Call those of `hardware` only if tile_unit_active() is kHardware, and those of `emulated` only
/// if it is kEmulated.
namespace hardware {
const ForwardFunctions* amx_forward(const ForwardSetup& setup);
}
namespace emulated {
const ForwardFunctions* amx_forward(const ForwardSetup& setup);
}

}  // namespace fovea::kernels
