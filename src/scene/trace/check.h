// SPDX-License-Identifier: Apache-2.0
//
// Compares a trace with the expectations and questions of its scene.

#pragma once

#include <vector>

#include "fovea/scene.h"

namespace fovea::scene {

/// Returns one check per expectation of the trace's scene.
std::vector<Check> check_steps(const Trace& trace);

/// Throws InvalidArgument if a question does not ask for one number of the trace.
void check_questions(const Trace& trace);

}  // namespace fovea::scene
