// SPDX-License-Identifier: Apache-2.0
//
// An alternate signal stack for programs that handle signals while layers compute.

#pragma once

#include "fovea/export.h"

namespace fovea::nn {

/// Installs an alternate stack for SA_ONSTACK signal handlers in the calling thread, unless the
/// thread has one.
///
/// Call this once, from the main thread, in a program whose signal handlers return while layers
/// compute. Kernels of oneDNN (2.6.3, and maybe later versions) use the stack pointer for other
/// memory. The system then writes the handler's frame below that address and overwrites other data.
/// This corrupts the heap, and the program crashes some time later. Signals are delivered to the
/// main thread unless it blocks them, so other threads need not call this.
FOVEA_API void use_signal_stack();

}  // namespace fovea::nn
