// SPDX-License-Identifier: Apache-2.0
//
// The transport of a test program's processes.

#pragma once

#include "fovea/mpi.h"

namespace fovea::test {

/// Returns the transport among all processes, which main() makes.
mpi::Transport& ranks();

}  // namespace fovea::test
