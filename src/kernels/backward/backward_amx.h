// SPDX-License-Identifier: Apache-2.0
//
// Internal interface between backward.cc and the backward pass for the tile unit, in hardware
// (backward_amx.cc) and emulated (backward_amx_emulated.cc).

#pragma once

#include "kernels/backward/backward_bf16.h"

namespace fovea::kernels {

/// Returns the entry points for the tile unit; null unless the active target has one and it is used
/// for these types.
const BackwardFunctions* amx_backward(const BackwardSetup& setup);
const BackwardFunctions* emulated_amx_backward(const BackwardSetup& setup);

}  // namespace fovea::kernels
