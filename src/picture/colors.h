// SPDX-License-Identifier: Apache-2.0
//
// Colours of weights on a map. A tone maps a value to a heat from 0 to 1, and a colour map maps the
// heat to a colour.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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

enum class ColorMap : std::uint8_t { kViridis, kMagma, kCividis, kGrey };

/// Returns "viridis", "magma", "cividis" or "grey".
std::string color_map_name(ColorMap colors);

/// Returns the colour for a heat from 0 to 1.
Rgb color_of(ColorMap colors, double heat);
/// Returns the colour for NaN, which does not occur in the colour map.
Rgb nan_color(ColorMap colors);

enum class Tone : std::uint8_t { kLinear, kLog, kSqrt };

/// Returns "linear", "log" or "sqrt".
std::string tone_name(Tone tone);

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
  double floor_ = 0.0;      // for Tone::kLog, which cannot represent zero
  double log_range_ = 1.0;  // log(top_ / floor_)
  double top_ = 1.0;
};

/// The drawing of a cell.
enum class CellKind : std::uint8_t { kMasked, kNan, kWeight };
CellKind kind_of(const MapCells& map, std::int64_t row, std::int64_t column);

/// The cells of a map in row-major order, for loops over millions of them, in which the views of
/// MapCells::value() would take most of the time.
class CellList {
 public:
  /// The map must outlive this object.
  explicit CellList(const MapCells& map);

  std::size_t size() const { return pairs_.size(); }
  double value(std::size_t cell) const {
    return floats_.empty() ? doubles_[cell] : static_cast<double>(floats_[cell]);
  }
  CellKind kind(std::size_t cell) const {
    if (pairs_[cell] == 0) return CellKind::kMasked;
    return std::isfinite(value(cell)) ? CellKind::kWeight : CellKind::kNan;
  }

 private:
  std::span<const float> floats_;
  std::span<const double> doubles_;  // used if floats_ is empty
  std::span<const std::int64_t> pairs_;
};

/// The drawing of a map.
struct MapLook {
  ColorMap colors = ColorMap::kViridis;
  std::string colors_name = "viridis";
  Tone tone = Tone::kSqrt;
  std::string tone_name = "sqrt";
};

/// Returns a look for a map of this number of keys, by which the tone is chosen if it is not given.
MapLook map_look(ColorMap colors, std::optional<Tone> tone, std::int64_t keys);

}  // namespace fovea
