// SPDX-License-Identifier: Apache-2.0
//
// The formula of each step in MathML, as textbooks set it.

#pragma once

#include <string>
#include <string_view>

#include "fovea/scene.h"

namespace fovea::scene::html {

/// A <math> element for the step of this name ("scores", "focus.weights[sum]"), as the scene
/// defines it: its kind of score, its scale, its normalisation. Steps of the focus are written for
/// one row, others for the whole matrix where that is what is computed.
std::string step_mathml(std::string_view name, const Scene& scene);

}  // namespace fovea::scene::html
