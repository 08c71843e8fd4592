// SPDX-License-Identifier: Apache-2.0
//
// Colours and shades for a heat map in a terminal.

#pragma once

#include <string>

#include "fovea/scene.h"

namespace fovea::scene {

/// `text` on a background for `heat` (0 to 1; anything else leaves it alone), with a foreground
/// that can be read on it.
std::string on_heat(const std::string& text, double heat, Color color);

/// One of " ░▒▓█" for a heat; "·" where masked (-inf), "!" for nan.
std::string shade(double heat);

std::string bold(const std::string& text, Color color);
std::string faint(const std::string& text, Color color);

}  // namespace fovea::scene
