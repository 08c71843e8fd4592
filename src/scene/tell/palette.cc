// SPDX-License-Identifier: Apache-2.0
//
// A single hue from near white to dark blue (palette.h), modelled on "Blues" of ColorBrewer by
// Cynthia Brewer. The order of colours survives colour blindness and black-and-white print.

#include "scene/tell/palette.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace fovea::scene {
namespace {

using Rgb = std::array<double, 3>;

constexpr std::array<Rgb, 5> kRamp = {
    {{247, 251, 255}, {198, 219, 239}, {107, 174, 214}, {33, 113, 181}, {8, 48, 107}}};

Rgb ramp(double heat) {
  const double at = std::clamp(heat, 0.0, 1.0) * (kRamp.size() - 1);
  const auto below = std::min(static_cast<std::size_t>(at), kRamp.size() - 2);
  const double share = at - static_cast<double>(below);
  Rgb mixed{};
  for (std::size_t c = 0; c < 3; ++c) {
    mixed[c] = kRamp[below][c] * (1 - share) + kRamp[below + 1][c] * share;
  }
  return mixed;
}

std::string styled(const std::string& text, const char* code, Color color) {
  if (color == Color::kNone || text.empty()) return text;
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

}  // namespace

int cube_index(const std::array<double, 3>& rgb) {
  int index = 16;
  for (std::size_t c = 0; c < 3; ++c) {
    // The cube's levels are 0, 95, 135, 175, 215, 255.
    const int level = rgb[c] < 48 ? 0 : std::min(5, static_cast<int>((rgb[c] - 35) / 40));
    index += level * (c == 0 ? 36 : c == 1 ? 6 : 1);
  }
  return index;
}

std::string on_heat(const std::string& text, double heat, Color color) {
  if (color == Color::kNone || !(heat >= 0.0 && heat <= 1.0)) return text;
  const Rgb rgb = ramp(heat);
  const bool dark = heat > 0.6;
  if (color == Color::k256) {
    return fmt::format("\x1b[48;5;{};38;5;{}m{}\x1b[0m", cube_index(rgb), dark ? 231 : 16, text);
  }
  const int ink = dark ? 255 : 0;
  return fmt::format("\x1b[48;2;{:.0f};{:.0f};{:.0f};38;2;{};{};{}m{}\x1b[0m", rgb[0], rgb[1],
                     rgb[2], ink, ink, ink, text);
}

std::string shade(double heat) {
  if (std::isnan(heat)) return "!";
  if (std::isinf(heat)) return "·";
  static const std::array<const char*, 5> shades = {" ", "░", "▒", "▓", "█"};
  const double step = std::ceil(std::clamp(heat, 0.0, 1.0) * 4.0 - 0.2);
  return shades[static_cast<std::size_t>(std::max(0.0, step))];
}

std::string shaded_cell(double heat) { return std::isinf(heat) ? "× " : shade(heat) + shade(heat); }

std::string bold(const std::string& text, Color color) { return styled(text, "1", color); }
std::string faint(const std::string& text, Color color) { return styled(text, "2", color); }

}  // namespace fovea::scene
