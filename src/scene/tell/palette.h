// SPDX-License-Identifier: Apache-2.0
//
// Colours and shades for a heat map in a terminal.

#pragma once

#include <array>
#include <string>

#include "fovea/scene.h"

namespace fovea::scene {

/// `text` on a background for `heat` (0 to 1; anything else leaves it alone), with a foreground
/// that can be read on it.
std::string on_heat(const std::string& text, double heat, Color color);

/// One of " ░▒▓█" for a heat; "·" where masked (-inf), "!" for nan.
std::string shade(double heat);

/// The nearest of the 6 x 6 x 6 colours that 256-colour terminals have; red, green and blue from 0
/// to 255.
int cube_index(const std::array<double, 3>& rgb);

std::string bold(const std::string& text, Color color);
std::string faint(const std::string& text, Color color);

}  // namespace fovea::scene
