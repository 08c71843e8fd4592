// SPDX-License-Identifier: Apache-2.0
//
// Renders formulas (tell/formula.h) as MathML.

#pragma once

#include <string>
#include <string_view>

#include "fovea/scene.h"

#include "scene/tell/formula.h"
#include "scene/texts/texts.h"

namespace fovea::scene::html {

/// Returns a <math> element.
std::string mathml(const Formula& formula);

/// Returns the formula of a step as a <math> element.
std::string step_mathml(std::string_view name, const Scene& scene, const Texts& texts);

}  // namespace fovea::scene::html
