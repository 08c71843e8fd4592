// SPDX-License-Identifier: Apache-2.0
//
// The formula of each step in MathML, in textbook notation.

#pragma once

#include <string>
#include <string_view>

#include "fovea/scene.h"

#include "scene/texts/texts.h"

namespace fovea::scene::html {

/// Returns a <math> element for the step with this name ("scores", "focus.weights[sum]"), with the
/// score kind, scale and normalisation of the scene. Formulas of focus steps are for one row; the
/// others are for the whole matrix if the step is a matrix operation.
std::string step_mathml(std::string_view name, const Scene& scene, const Texts& texts);

}  // namespace fovea::scene::html
