// SPDX-License-Identifier: Apache-2.0
//
// Small maps with labels (table.h).

#include "picture/table.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "picture/letters.h"

namespace fovea {
namespace {

constexpr std::int64_t kTableMargin = 24;
constexpr std::int64_t kTableGap = 2;     // between cells
constexpr std::int64_t kLetterScale = 2;  // pixels per pixel of a letter
constexpr int kTableLevels = 250;
// Palette entries: levels begin at 0.
constexpr std::uint8_t kTablePaper = 250, kTableMasked = 251, kTableNan = 252, kTableInk = 253;

std::int64_t widest_label(const std::vector<std::string>& labels) {
  std::int64_t widest = 0;
  for (const std::string& label : labels) widest = std::max(widest, letters_width(label));
  return widest * kLetterScale;
}

}  // namespace

std::string table_as_png(const MapCells& map, const MapLook& look, const TableLabels& labels,
                         const std::vector<ImageText>& texts) {
  const std::int64_t most = std::max(map.rows(), map.columns());
  const std::int64_t step = std::clamp<std::int64_t>(1600 / most, 6, 56);
  const std::int64_t line = kLetterHeight * kLetterScale;
  const std::int64_t left =
      kTableMargin +
      std::max(widest_label(labels.rows), letters_width(labels.down) * kLetterScale) + 12;
  const std::int64_t top = kTableMargin + 2 * line + 24;
  IndexedImage image;
  image.transparent = false;
  const std::int64_t title = letters_width(labels.across) * kLetterScale;
  image.width = std::max(left + map.columns() * step, left + title) + kTableMargin;
  image.height = top + map.rows() * step + kTableMargin;
  image.pixels.assign(static_cast<std::size_t>(image.width * image.height), kTablePaper);
  for (int i = 0; i < kTableLevels; ++i) {
    image.palette[static_cast<std::size_t>(i)] =
        color_of(look.colors, static_cast<double>(i) / (kTableLevels - 1));
  }
  image.palette[kTablePaper] = {0xff, 0xff, 0xff};
  image.palette[kTableMasked] = {0xee, 0xf0, 0xf3};
  image.palette[kTableNan] = nan_color(look.colors);
  image.palette[kTableInk] = {0x3a, 0x42, 0x51};

  const Scale scale(look.tone, map);
  const std::int64_t side = step - (step > 8 ? kTableGap : 0);
  for (std::int64_t row = 0; row < map.rows(); ++row) {
    for (std::int64_t column = 0; column < map.columns(); ++column) {
      const CellKind kind = kind_of(map, row, column);
      std::uint8_t entry = kind == CellKind::kNan ? kTableNan : kTableMasked;
      if (kind == CellKind::kWeight) {
        const double heat = scale.heat(map.value(row, column));
        entry = static_cast<std::uint8_t>(std::lround(heat * (kTableLevels - 1)));
      }
      for (std::int64_t y = top + row * step; y < top + row * step + side; ++y) {
        std::fill_n(image.pixels.begin() + y * image.width + left + column * step, side, entry);
      }
    }
  }
  const auto draw = [&](std::int64_t x, std::int64_t y, const std::string& text) {
    draw_letters(image, x, y, text, kTableInk, kLetterScale);
  };
  draw(left, kTableMargin, labels.across);
  draw(left - 12 - letters_width(labels.down) * kLetterScale, top - line - 12, labels.down);
  // Labels are left out where they would touch.
  const std::int64_t column_step =
      (widest_label(labels.columns) + kLetterWidth * kLetterScale + step - 1) / step;
  for (std::int64_t column = 0; column < map.columns(); column += column_step) {
    const std::string& label = labels.columns[static_cast<std::size_t>(column)];
    draw(left + column * step + side / 2 - letters_width(label) * kLetterScale / 2, top - line - 12,
         label);
  }
  const std::int64_t row_step = (line + 4 + step - 1) / step;
  for (std::int64_t row = 0; row < map.rows(); row += row_step) {
    const std::string& label = labels.rows[static_cast<std::size_t>(row)];
    draw(left - 12 - letters_width(label) * kLetterScale, top + row * step + side / 2 - line / 2,
         label);
  }
  return image_as_png(std::move(image), texts);
}

}  // namespace fovea
