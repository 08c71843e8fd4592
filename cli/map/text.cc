// SPDX-License-Identifier: Apache-2.0
//
// Maps in a terminal (text.h). Each line begins with the name of its queries. In small maps a cell
// is two characters wide, so that it is square.

#include "cli/map/text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "scene/tell/palette.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

constexpr int kLabel = 18;  // columns of a row's name and the space after it
constexpr std::int64_t kFewRows = 40;
constexpr std::int64_t kMaxRows = 80;
constexpr std::string_view kReset = "\x1b[0m";

bool has_wide_cells(std::int64_t rows, std::int64_t columns, int width) {
  return rows <= kFewRows && 2 * columns <= width - kLabel;
}

/// Returns the escape sequence for a foreground (38) or background (48) colour.
std::string code(int which, Rgb color, scene::Color depth) {
  if (depth == scene::Color::kTrueColor) {
    return fmt::format("\x1b[{};2;{};{};{}m", which, color.red, color.green, color.blue);
  }
  const int index =
      scene::cube_index({static_cast<double>(color.red), static_cast<double>(color.green),
                         static_cast<double>(color.blue)});
  return fmt::format("\x1b[{};5;{}m", which, index);
}

class Painter {
 public:
  Painter(const MapCells& map, const MapLook& look, scene::Color depth)
      : map_(map), look_(look), scale_(look.tone, map), depth_(depth) {}

  const Scale& scale() const { return scale_; }

  /// Returns a cell that is two characters wide.
  std::string wide(std::int64_t row, std::int64_t column) const {
    const CellKind kind = kind_of(map_, row, column);
    if (depth_ == scene::Color::kNone) return shade(row, column) + shade(row, column);
    if (kind == CellKind::kMasked) return scene::faint("··", depth_);
    return fmt::format("{}  {}", code(48, color(row, column), depth_), kReset);
  }

  /// Returns one character for a cell, without colours.
  std::string shade(std::int64_t row, std::int64_t column) const {
    switch (kind_of(map_, row, column)) {
      case CellKind::kMasked:
        return scene::shade(-std::numeric_limits<double>::infinity());
      case CellKind::kNan:
        return scene::shade(std::numeric_limits<double>::quiet_NaN());
      case CellKind::kWeight:
        break;
    }
    return scene::shade(scale_.heat(map_.value(row, column)));
  }

  /// Returns one character for a cell and the cell below it, if there is one.
  std::string two(std::int64_t row, std::int64_t column) const {
    const bool upper = seen(row, column);
    const bool lower = row + 1 < map_.rows() && seen(row + 1, column);
    if (!upper && !lower) return " ";
    if (!upper) return fmt::format("{}▄{}", code(38, color(row + 1, column), depth_), kReset);
    std::string text = code(38, color(row, column), depth_);
    if (lower) text += code(48, color(row + 1, column), depth_);
    return text + fmt::format("▀{}", kReset);
  }

  /// Returns the colour scale as one line.
  std::string bar() const {
    std::string shown = " ░▒▓█";
    if (depth_ != scene::Color::kNone) {
      constexpr int kSteps = 16;
      shown.clear();
      for (int i = 0; i < kSteps; ++i) {
        const double heat = static_cast<double>(i) / (kSteps - 1);
        shown += code(48, color_of(look_.colors, heat), depth_) + " ";
      }
      shown += kReset;
    }
    return fmt::format("{:.3g} {} {:.3g}", scale_.bottom(), shown, scale_.top());
  }

 private:
  bool seen(std::int64_t row, std::int64_t column) const {
    return kind_of(map_, row, column) != CellKind::kMasked;
  }
  Rgb color(std::int64_t row, std::int64_t column) const {
    if (kind_of(map_, row, column) == CellKind::kNan) return nan_color(look_.colors);
    return color_of(look_.colors, scale_.heat(map_.value(row, column)));
  }

  const MapCells& map_;
  const MapLook& look_;
  Scale scale_;
  scene::Color depth_;
};

/// Returns the name of a line: the indices of its queries, with the token of a single query.
std::string line_name(const MapWords& words, IndexRange queries) {
  std::string name = span_words(queries);
  if (queries.size() == 1 && !words.query_tokens.empty()) {
    name += " " + visible(token_of(words.query_tokens, queries.begin));
  }
  return pad_right(fit(name, kLabel - 1), kLabel);
}

}  // namespace

TextSize text_size(std::int64_t queries, std::int64_t keys, int width, scene::Color color) {
  if (has_wide_cells(queries, keys, width)) return {keys, queries};
  const std::int64_t columns = std::min<std::int64_t>(keys, width - kLabel);
  // Keeps the aspect ratio; a character is twice as high as wide.
  const double shape = static_cast<double>(queries) / static_cast<double>(keys);
  const bool shades = color == scene::Color::kNone;
  const double rows = static_cast<double>(columns) * shape * (shades ? 0.5 : 1.0);
  const std::int64_t most = std::min(queries, shades ? kMaxRows / 2 : kMaxRows);
  return {columns, std::clamp<std::int64_t>(std::llround(std::min(rows, 1e6)), 1, most)};
}

std::string map_as_text(const MapCells& map, const MapLook& look, const MapWords& words, int width,
                        scene::Color color) {
  const Painter painter(map, look, color);
  std::string text = visible(words.title) + "\n";
  for (const std::string& line : words.lines) {
    text += scene::faint(visible(line), color) + "\n";
  }
  text += "\n";
  const bool wide = has_wide_cells(map.rows(), map.columns(), width);
  const std::string margin(kLabel, ' ');
  const std::string first = std::to_string(map.keys.begin);
  const std::string last = std::to_string(map.keys.end - 1);
  if (wide) {
    text += margin;
    for (std::int64_t c = 0; c < map.columns(); ++c) {
      // A cell has room for two digits.
      text += pad_right(std::to_string(map.keys_of(c).begin % 100), 2);
    }
  } else {
    const auto room = static_cast<int>(map.columns()) - display_width(first);
    text += margin + first + (map.columns() > 1 ? pad_left(last, room) : "");
  }
  text += "\n";
  const std::int64_t step = wide || color == scene::Color::kNone ? 1 : 2;
  for (std::int64_t r = 0; r < map.rows(); r += step) {
    const std::int64_t last_row = std::min(r + step, map.rows()) - 1;
    text += line_name(words, {map.queries_of(r).begin, map.queries_of(last_row).end});
    for (std::int64_t c = 0; c < map.columns(); ++c) {
      text += wide ? painter.wide(r, c) : step == 2 ? painter.two(r, c) : painter.shade(r, c);
    }
    text += "\n";
  }
  text += fmt::format("\n{}{} of a cell's weights, {}", margin + painter.bar() + "  ",
                      pool_name(map.pool), look.tone_name);
  if (color == scene::Color::kNone) text += "; · masked, ! nan";
  return text + "\n";
}

}  // namespace fovea::cli
