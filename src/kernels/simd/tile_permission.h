// SPDX-License-Identifier: Apache-2.0
//
// Whether this process may use the tile instructions of the CPU (AMX). Linux wants to be asked,
// once per process, because tile registers add 8 KiB to the state of a thread.

#pragma once

#include <string>

namespace fovea::kernels {

struct TilePermission {
  bool granted = false;
  /// Why not, for a CPU with tile instructions for bfloat16; empty for other CPUs.
  std::string refusal;
};

/// Asks the system at the first call. May be called concurrently.
const TilePermission& tile_permission();

}  // namespace fovea::kernels
