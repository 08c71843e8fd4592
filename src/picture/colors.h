// SPDX-License-Identifier: Apache-2.0
//
// What colour a weight has on a map: from a value to a heat by a tone, from a heat to a colour by a
// colour map.

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

/// "#440154".
std::string hex(Rgb color);

enum class ColorMap : std::uint8_t { kViridis, kMagma, kGrey };

/// For a heat from 0 to 1.
Rgb color_of(ColorMap colors, double heat);
/// For nan: one that the colour map does not have.
Rgb nan_color(ColorMap colors);

enum class Tone : std::uint8_t { kLinear, kLog, kSqrt };

/// From values to heats: 0 at `bottom()`, 1 at `top()`, the map's largest value.
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
  /// Round values from the bottom to the top, as far apart as `distance` in heats.
  std::vector<Tick> ticks(double distance) const;

 private:
  Tone tone_;
  double floor_ = 0.0;  // of Tone::kLog, which has no zero
  double top_ = 1.0;
};

/// What a cell is drawn as.
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
