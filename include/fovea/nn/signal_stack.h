// SPDX-License-Identifier: Apache-2.0
//
// Signals while layers compute.

#pragma once

#include "fovea/export.h"

namespace fovea::nn {

/// Gives the calling thread a stack of its own for handlers with SA_ONSTACK, unless it has one.
///
/// To be called once, by the main thread, in a program whose handlers of signals return while
/// layers compute: kernels of oneDNN (2.6.3, and maybe later ones) use the stack pointer for other
/// memory, below which the system then writes the handler's frame, over what is there. The heap is
/// broken after that, and the program ends some time later. Signals go to the main thread unless it
/// blocks them; other threads need not call this.
FOVEA_API void use_signal_stack();

}  // namespace fovea::nn
