// SPDX-License-Identifier: Apache-2.0
//
// Colours of maps (colors.h). Viridis and magma are the colour maps of van der Walt and Smith
// (CC0), cividis that of Nunez, Anderton and Renslow (2018). They are perceptually uniform, even
// with colour blindness and in black-and-white print. They are sampled at eleven stops and
// interpolated linearly.

#include "picture/colors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace fovea {
namespace {

constexpr std::size_t kStops = 11;
using Ramp = std::array<std::uint32_t, kStops>;

constexpr Ramp kViridis = {0x440154, 0x482576, 0x414487, 0x35608d, 0x2a788e, 0x21908c,
                           0x22a884, 0x43bf71, 0x7ad151, 0xbbdf27, 0xfde725};
constexpr Ramp kMagma = {0x000004, 0x140e36, 0x3b0f70, 0x641a80, 0x8c2981, 0xb73779,
                         0xde4968, 0xf7705c, 0xfe9f6d, 0xfecf92, 0xfcfdbf};
constexpr Ramp kCividis = {0x00224e, 0x083370, 0x35456c, 0x4f576c, 0x666970, 0x7d7c78,
                           0x948e77, 0xaea371, 0xc8b866, 0xe5cf52, 0xfee838};

// Bottom of the logarithmic scale as a fraction of the largest weight. All smaller weights have the
// same colour.
constexpr double kDepth = 1e-6;

double channel(const Ramp& ramp, std::size_t stop, int shift) {
  return static_cast<double>((ramp[stop] >> shift) & 0xffU);
}

/// Returns 1, 2 and 5 times powers of ten in descending order from `top`, or only the powers if the
/// range spans several decades.
std::vector<double> round_values(double bottom, double top) {
  constexpr double kSeveral = 1e3;
  const bool powers = bottom > 0.0 && top / bottom > kSeveral;
  std::vector<double> values;
  const int highest = static_cast<int>(std::floor(std::log10(top)));
  constexpr int kDecades = 9;
  for (int power = highest; power > highest - kDecades; --power) {
    for (const double digit : {5.0, 2.0, 1.0}) {
      const double value = digit * std::pow(10.0, power);
      if (value > top || value < bottom || (powers && digit > 1.0)) continue;
      values.push_back(value);
    }
  }
  return values;
}

}  // namespace

std::string hex(Rgb color) {
  return fmt::format("#{:02x}{:02x}{:02x}", color.red, color.green, color.blue);
}

std::string color_map_name(ColorMap colors) {
  switch (colors) {
    case ColorMap::kMagma:
      return "magma";
    case ColorMap::kCividis:
      return "cividis";
    case ColorMap::kGrey:
      return "grey";
    case ColorMap::kViridis:
      break;
  }
  return "viridis";
}

std::string tone_name(Tone tone) {
  if (tone == Tone::kLinear) return "linear";
  return tone == Tone::kLog ? "log" : "sqrt";
}

MapLook map_look(ColorMap colors, std::optional<Tone> tone, std::int64_t keys) {
  // With many keys, most weights are so small that their square roots look the same.
  constexpr std::int64_t kManyKeys = 256;
  const Tone chosen = tone.value_or(keys > kManyKeys ? Tone::kLog : Tone::kSqrt);
  return {.colors = colors,
          .colors_name = color_map_name(colors),
          .tone = chosen,
          .tone_name = tone_name(chosen)};
}

Rgb color_of(ColorMap colors, double heat) {
  const double at = std::clamp(heat, 0.0, 1.0);
  const auto byte = [](double level) { return static_cast<std::uint8_t>(std::lround(level)); };
  if (colors == ColorMap::kGrey) return {byte(at * 255.0), byte(at * 255.0), byte(at * 255.0)};
  const Ramp& ramp = colors == ColorMap::kMagma     ? kMagma
                     : colors == ColorMap::kCividis ? kCividis
                                                    : kViridis;
  const double place = at * (kStops - 1);
  const std::size_t below = std::min(static_cast<std::size_t>(place), kStops - 2);
  const double share = place - static_cast<double>(below);
  const auto mixed = [&](int shift) {
    return byte(channel(ramp, below, shift) * (1.0 - share) +
                channel(ramp, below + 1, shift) * share);
  };
  return {mixed(16), mixed(8), mixed(0)};
}

Rgb nan_color(ColorMap colors) {
  // Magma contains red, viridis contains green.
  if (colors == ColorMap::kMagma) return {0x00, 0xd6, 0xa3};
  return {0xff, 0x2d, 0x55};
}

Scale::Scale(Tone tone, const MapCells& map) : tone_(tone) {
  double largest = 0.0;
  double smallest = std::numeric_limits<double>::infinity();
  const CellList cells(map);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells.kind(i) != CellKind::kWeight) continue;
    const double value = cells.value(i);
    largest = std::max(largest, value);
    if (value > 0.0) smallest = std::min(smallest, value);
  }
  if (largest > 0.0) top_ = largest;
  // The scale spans at least a decade, so that noise does not look like contrast.
  floor_ = std::max(std::min(smallest, top_ / 10.0), top_ * kDepth);
  log_range_ = std::log(top_ / floor_);
}

double Scale::heat(double value) const {
  switch (tone_) {
    case Tone::kLinear:
      return value / top_;
    case Tone::kSqrt:
      return std::sqrt(value / top_);
    case Tone::kLog:
      break;
  }
  return value <= floor_ ? 0.0 : std::log(value / floor_) / log_range_;
}

std::vector<Scale::Tick> Scale::ticks(double distance) const {
  const auto words = [](double value) { return fmt::format("{:.3g}", value); };
  std::vector<Tick> chosen = {{top_, words(top_)}};
  const double lowest = heat(bottom());
  for (const double value : round_values(bottom(), top_)) {
    const double at = heat(value);
    if (at <= heat(chosen.back().value) - distance && at >= lowest + distance) {
      chosen.push_back({value, words(value)});
    }
  }
  chosen.push_back({bottom(), (tone_ == Tone::kLog ? "≤ " : "") + words(bottom())});
  std::reverse(chosen.begin(), chosen.end());
  return chosen;
}

CellList::CellList(const MapCells& map) : pairs_(map.pairs.span<std::int64_t>()) {
  if (map.cells.dtype() == DType::kFloat32) {
    floats_ = map.cells.span<float>();
  } else {
    doubles_ = map.cells.span<double>();
  }
}

CellKind kind_of(const MapCells& map, std::int64_t row, std::int64_t column) {
  if (map.masked(row, column)) return CellKind::kMasked;
  return std::isfinite(map.value(row, column)) ? CellKind::kWeight : CellKind::kNan;
}

}  // namespace fovea
