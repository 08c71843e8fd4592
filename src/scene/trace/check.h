// SPDX-License-Identifier: Apache-2.0
//
// Compares a trace with the expectations of its scene.

#pragma once

#include <vector>

#include "fovea/scene.h"

namespace fovea::scene {

/// Returns one check per expectation of the trace's scene.
std::vector<Check> check_steps(const Trace& trace);

}  // namespace fovea::scene
