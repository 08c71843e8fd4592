// SPDX-License-Identifier: Apache-2.0
//
// Internal interface between backward.cc and the backward pass for the tile unit (backward_amx.cc).

#pragma once

#include "kernels/backward/backward_bf16.h"

namespace fovea::kernels {

/// Return the entry points for the tile unit, or null if other passes are faster for these types.
/// Call those of `hardware` only if tile_unit_active() is kHardware, and those of `emulated` only
/// if it is kEmulated.
namespace hardware {
const BackwardFunctions* amx_backward(const BackwardSetup& setup);
}
namespace emulated {
const BackwardFunctions* amx_backward(const BackwardSetup& setup);
}

}  // namespace fovea::kernels
