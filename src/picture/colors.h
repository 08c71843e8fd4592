// SPDX-License-Identifier: Apache-2.0
//
// Colours of weights on a map. A tone maps a value to a heat from 0 to 1, and a colour map maps the
// heat to a colour.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/map.h"

namespace fovea {

struct Rgb {
  std::uint8_t red = 0;
  std::uint8_t green = 0;
  std::uint8_t blue = 0;
};

/// Returns a colour in CSS notation: "#440154".
std::string hex(Rgb color);

enum class ColorMap : std::uint8_t { kViridis, kMagma, kGrey };

/// Returns the colour for a heat from 0 to 1.
Rgb color_of(ColorMap colors, double heat);
/// Returns the colour for NaN, which does not occur in the colour map.
Rgb nan_color(ColorMap colors);

enum class Tone : std::uint8_t { kLinear, kLog, kSqrt };

/// Mapping from values to heats: 0 at `bottom()`, 1 at `top()`, the largest value of the map.
class Scale {
 public:
  Scale(Tone tone, const MapCells& map);

  double bottom() const { return tone_ == Tone::kLog ? floor_ : 0.0; }
  double top() const { return top_; }
  double heat(double value) const;

  struct Tick {
    double value = 0.0;
    std::string words;
  };
  /// Returns round values from bottom to top whose heats are at least `distance` apart.
  std::vector<Tick> ticks(double distance) const;

 private:
  Tone tone_;
  double floor_ = 0.0;  // for Tone::kLog, which cannot represent zero
  double top_ = 1.0;
};

/// How a cell is drawn.
enum class CellKind : std::uint8_t { kMasked, kNan, kWeight };
CellKind kind_of(const MapCells& map, std::int64_t row, std::int64_t column);

/// How a map is drawn.
struct MapLook {
  ColorMap colors = ColorMap::kViridis;
  std::string colors_name = "viridis";
  Tone tone = Tone::kSqrt;
  std::string tone_name = "sqrt";
};

}  // namespace fovea
