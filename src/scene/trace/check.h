// SPDX-License-Identifier: Apache-2.0
//
// Comparing a trace with what its author expects.

#pragma once

#include <vector>

#include "fovea/scene.h"

namespace fovea::scene {

/// One check per expectation of the trace's scene.
std::vector<Check> check_steps(const Trace& trace);

}  // namespace fovea::scene
