// SPDX-License-Identifier: Apache-2.0
//
// Colours and shades for a heat map in a terminal.

#pragma once

#include <array>
#include <string>

#include "fovea/scene.h"

namespace fovea::scene {

/// Returns `text` with a background colour for `heat` and a readable foreground. The text is
/// unchanged if `heat` is not from 0 to 1.
std::string on_heat(const std::string& text, double heat, Color color);

/// Returns one of " ░▒▓█" for a heat, "·" for -inf and "!" for NaN.
std::string shade(double heat);

/// Returns a cell of a heat map without colours, two columns wide: a shade, "× " for masked (-inf)
/// or "!!" for NaN.
std::string shaded_cell(double heat);

/// Returns the nearest entry of the 6 x 6 x 6 colour cube of 256-colour terminals. Red, green and
/// blue range from 0 to 255.
int cube_index(const std::array<double, 3>& rgb);

std::string bold(const std::string& text, Color color);
std::string faint(const std::string& text, Color color);

}  // namespace fovea::scene
