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
constexpr std::int64_t kMaxTable = 1600;  // of the longer side, if cells may be that small
constexpr std::int64_t kMaxCell = 56;
constexpr std::int64_t kLine = kLetterHeight * kLetterScale;
constexpr std::int64_t kMinCell = kLine + 4;  // with a label each
constexpr int kTableLevels = 250;
// Palette entries: levels begin at 0.
constexpr std::uint8_t kTablePaper = 250, kTableMasked = 251, kTableNan = 252, kTableInk = 253;

std::int64_t widest_label(const std::vector<std::string>& labels) {
  std::int64_t widest = 0;
  for (const std::string& label : labels) widest = std::max(widest, letters_width(label));
  return widest * kLetterScale;
}

/// Returns the pixels from one cell to the next along a side of `count` cells, where the longer
/// side of the table has `most`. Cells are square unless only one side is too long for kMinCell.
std::int64_t cell_step(std::int64_t count, std::int64_t most) {
  const std::int64_t square = std::clamp<std::int64_t>(kMaxTable / most, 1, kMaxCell);
  return count * kMinCell <= kMaxTable ? std::max(square, kMinCell) : square;
}

/// Returns the distance between labels that is at least `least`: 1, 2, 5, 10, 20, 50, ...
std::int64_t label_step(std::int64_t least) {
  for (std::int64_t unit = 1;; unit *= 10) {
    for (const std::int64_t step : {unit, 2 * unit, 5 * unit}) {
      if (step >= least) return step;
    }
  }
}

}  // namespace

std::string table_as_png(const MapCells& map, const MapLook& look, const TableLabels& labels,
                         const std::vector<ImageText>& texts) {
  const std::int64_t most = std::max(map.rows(), map.columns());
  const std::int64_t across = cell_step(map.columns(), most), down = cell_step(map.rows(), most);
  const std::int64_t left =
      kTableMargin +
      std::max(widest_label(labels.rows), letters_width(labels.down) * kLetterScale) + 12;
  const std::int64_t top = kTableMargin + 2 * kLine + 24;
  IndexedImage image;
  image.transparent = false;
  const std::int64_t title = letters_width(labels.across) * kLetterScale;
  image.width = std::max(left + map.columns() * across, left + title) + kTableMargin;
  image.height = top + map.rows() * down + kTableMargin;
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
  const std::int64_t gap = std::min(across, down) > 8 ? kTableGap : 0;
  const std::int64_t width = across - gap, height = down - gap;
  for (std::int64_t row = 0; row < map.rows(); ++row) {
    for (std::int64_t column = 0; column < map.columns(); ++column) {
      const CellKind kind = kind_of(map, row, column);
      std::uint8_t entry = kind == CellKind::kNan ? kTableNan : kTableMasked;
      if (kind == CellKind::kWeight) {
        const double heat = scale.heat(map.value(row, column));
        entry = static_cast<std::uint8_t>(std::lround(heat * (kTableLevels - 1)));
      }
      for (std::int64_t y = top + row * down; y < top + row * down + height; ++y) {
        std::fill_n(image.pixels.begin() + y * image.width + left + column * across, width, entry);
      }
    }
  }
  const auto draw = [&](std::int64_t x, std::int64_t y, const std::string& text) {
    draw_letters(image, x, y, text, kTableInk, kLetterScale);
  };
  draw(left, kTableMargin, labels.across);
  draw(left - 12 - letters_width(labels.down) * kLetterScale, top - kLine - 12, labels.down);
  // Labels are left out where they would touch.
  const std::int64_t column_step = label_step(
      (widest_label(labels.columns) + kLetterWidth * kLetterScale + across - 1) / across);
  for (std::int64_t column = 0; column < map.columns(); column += column_step) {
    const std::string& label = labels.columns[static_cast<std::size_t>(column)];
    draw(left + column * across + width / 2 - letters_width(label) * kLetterScale / 2,
         top - kLine - 12, label);
  }
  const std::int64_t row_step = label_step((kMinCell + down - 1) / down);
  for (std::int64_t row = 0; row < map.rows(); row += row_step) {
    const std::string& label = labels.rows[static_cast<std::size_t>(row)];
    draw(left - 12 - letters_width(label) * kLetterScale, top + row * down + height / 2 - kLine / 2,
         label);
  }
  return image_as_png(std::move(image), texts);
}

}  // namespace fovea
