// SPDX-License-Identifier: Apache-2.0
//
// Small multiples of heads (heads.h). All heads are one image, because hundreds of images would
// make a page slow; SVG and page add texts, grounds and bars around it.

#include "picture/heads.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "json/json_text.h"
#include "picture/base64.h"
#include "picture/letters.h"
#include "text/html_escape.h"
#include "text/text_width.h"

namespace fovea {

// page/heads_svg.css, page/heads.css and page/heads.js, embedded by the build.
extern const std::string_view kHeadsSvgStyle;
extern const std::string_view kHeadsPageStyle;
extern const std::string_view kHeadsPageScript;

namespace {

// The palette: transparent or paper, NaN, levels of weights, and colours of everything else.
constexpr std::uint8_t kPaperEntry = 0;
constexpr std::uint8_t kNanEntry = 1;
constexpr std::uint8_t kFirstLevel = 2;
constexpr int kGridLevels = 240;
constexpr std::uint8_t kGroundEntry = 242;
constexpr std::uint8_t kInkEntry = 243;
constexpr std::uint8_t kSoftEntry = 244;
constexpr std::uint8_t kFirstNameEntry = 245;  // up to 255

/// The names of heads with their colours and their captions in a PNG. Okabe and Ito (2008) chose
/// most of the colours to be distinct for all kinds of colour vision.
struct NameColor {
  std::string_view name;
  std::string_view caption;
  Rgb color;
};
constexpr std::array<NameColor, 9> kNameColors = {
    {{"previous token", "previous", {0x56, 0xb4, 0xe9}},
     {"own token", "own", {0x00, 0x9e, 0x73}},
     {"next token", "next", {0xf0, 0xe4, 0x42}},
     {"sink", "sink", {0xe6, 0x9f, 0x00}},
     {"local blocks", "blocks", {0x00, 0x72, 0xb2}},
     {"one key", "one key", {0xd5, 0x5e, 0x00}},
     {"induction", "induction", {0xcc, 0x79, 0xa7}},
     {"duplicate token", "duplicate", {0x8a, 0x5a, 0xd6}},
     {"uniform", "uniform", {0x99, 0x99, 0x99}}}};

/// Returns the index of a name's colour; -1 if it has none.
int name_place(std::string_view name) {
  const auto found = std::ranges::find(kNameColors, name, &NameColor::name);
  return found == kNameColors.end() ? -1 : static_cast<int>(found - kNameColors.begin());
}

/// Lengths in pixels of the PNG, half of which are the lengths of the drawing, so that it is sharp
/// on fine screens.
struct GridLayout {
  std::int64_t side = 0;
  std::int64_t gap = 14;
  std::int64_t bar = 6;       // under each head
  std::int64_t caption = 22;  // under the bar; 0 if names do not fit
  std::int64_t left = 0, top = 0;
  std::int64_t rows = 0, columns = 0;

  std::int64_t step_x() const { return side + gap; }
  std::int64_t step_y() const { return side + bar + caption + gap; }
  std::int64_t x(std::int64_t column) const { return left + column * step_x(); }
  std::int64_t y(std::int64_t row) const { return top + row * step_y(); }
  std::int64_t width() const { return x(columns) - gap + kMargin; }
  std::int64_t height() const { return y(rows) - gap + kMargin; }
  static constexpr std::int64_t kMargin = 28;
};

GridLayout layout_of(const HeadGrid& grid) {
  GridLayout layout;
  layout.rows = static_cast<std::int64_t>(grid.rows.size());
  layout.columns = static_cast<std::int64_t>(grid.columns.size());
  layout.side = grid_side(layout.rows, layout.columns);
  // "previous token" in the smallest letters of the drawing.
  constexpr std::int64_t kCaptionWidth = 112;
  if (layout.side < kCaptionWidth) layout.caption = 0;
  std::size_t letters = 1;
  for (const GridRow& row : grid.rows) letters = std::max(letters, row.label.size());
  // Room for the labels and for the word "layer" above them.
  layout.left = GridLayout::kMargin +
                std::max<std::int64_t>(76, 14 * static_cast<std::int64_t>(letters) + 16);
  layout.top = GridLayout::kMargin + 64;
  return layout;
}

/// Returns all heads at their places; everything else is entry 0.
IndexedImage draw_heads(const HeadGrid& grid, const GridLayout& layout) {
  IndexedImage image;
  image.width = layout.width();
  image.height = layout.height();
  image.pixels.assign(static_cast<std::size_t>(image.width * image.height), kPaperEntry);
  image.palette[kNanEntry] = nan_color(ColorMap::kViridis);
  for (int i = 0; i < kGridLevels; ++i) {
    image.palette[static_cast<std::size_t>(kFirstLevel + i)] =
        color_of(ColorMap::kViridis, static_cast<double>(i) / (kGridLevels - 1));
  }
  image.palette[kPaperEntry] = {0xff, 0xff, 0xff};
  image.palette[kGroundEntry] = {0xee, 0xf0, 0xf3};
  image.palette[kInkEntry] = {0x1f, 0x24, 0x30};
  image.palette[kSoftEntry] = {0x58, 0x61, 0x73};
  for (std::size_t i = 0; i < kNameColors.size(); ++i) {
    image.palette[kFirstNameEntry + i] = kNameColors[i].color;
  }
  for (std::size_t r = 0; r < grid.rows.size(); ++r) {
    for (const GridHead& head : grid.rows[r].heads) {
      const std::int64_t left = layout.x(head.column);
      const std::int64_t top = layout.y(static_cast<std::int64_t>(r));
      for (std::int64_t y = 0; y < layout.side; ++y) {
        const std::int64_t from = y * head.image.height / layout.side;
        for (std::int64_t x = 0; x < layout.side; ++x) {
          const std::int64_t pixel = from * head.image.width + x * head.image.width / layout.side;
          image.pixels[static_cast<std::size_t>((top + y) * image.width + left + x)] =
              head.image.pixels[static_cast<std::size_t>(pixel)];
        }
      }
    }
  }
  return image;
}

void fill_box(IndexedImage& image, std::int64_t left, std::int64_t top, std::int64_t width,
              std::int64_t height, std::uint8_t entry, bool only_paper) {
  for (std::int64_t y = top; y < top + height; ++y) {
    for (std::int64_t x = left; x < left + width; ++x) {
      std::uint8_t& pixel = image.pixels[static_cast<std::size_t>(y * image.width + x)];
      if (!only_paper || pixel == kPaperEntry) pixel = entry;
    }
  }
}

std::string two_decimals(std::int64_t pixels) {
  return fmt::format("{:.6g}", static_cast<double>(pixels) / 2);
}

/// Returns the drawing as an SVG. `titled` adds title and text, for a standalone file.
std::string draw_grid(const HeadGrid& grid, bool titled) {
  const GridLayout layout = layout_of(grid);
  const auto half = [](std::int64_t pixels) { return static_cast<double>(pixels) / 2; };
  constexpr double kLine = 18.0;
  const double above = titled ? 40.0 + kLine * static_cast<double>(grid.lines.size()) : 0.0;
  std::array<bool, kNameColors.size()> named{};
  for (const GridRow& row : grid.rows) {
    for (const GridHead& head : row.heads) {
      if (const int place = name_place(head.name); place >= 0) {
        named[static_cast<std::size_t>(place)] = true;
      }
    }
  }
  const bool legend = std::ranges::find(named, true) != named.end();
  const double legend_height = legend ? 26.0 : 0.0;
  double width = half(layout.width());
  double legend_width = 14.0;
  for (std::size_t i = 0; legend && i < named.size(); ++i) {
    if (named[i]) legend_width += 36.0 + 7.0 * static_cast<double>(kNameColors[i].name.size());
  }
  width = std::max(width, legend_width);
  if (titled) {
    int columns = display_width(grid.title) * 3 / 2;
    for (const std::string& line : grid.lines) columns = std::max(columns, display_width(line));
    width = std::max(width, 28.0 + columns * 6.6);
  }
  const double top = above + legend_height;
  const double height = top + half(layout.height());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\">\n<style>\n{3}</style>\n",
      std::ceil(width), std::ceil(height), scene::html::escape(grid.title), kHeadsSvgStyle);
  if (titled) {
    svg += fmt::format(
        "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n<text class=\"title\" x=\"14\" "
        "y=\"28\">{}</text>\n",
        scene::html::escape(grid.title));
    double y = 28.0;
    for (const std::string& line : grid.lines) {
      y += kLine;
      svg += fmt::format("<text class=\"label\" x=\"14\" y=\"{:.6g}\">{}</text>\n", y,
                         scene::html::escape(line));
    }
  }
  double x = 14.0;
  for (std::size_t i = 0; legend && i < named.size(); ++i) {
    if (!named[i]) continue;
    svg += fmt::format(
        "<rect fill=\"{}\" x=\"{:.6g}\" y=\"{:.6g}\" width=\"14\" height=\"6\" rx=\"2\"/><text "
        "class=\"label\" x=\"{:.6g}\" y=\"{:.6g}\">{}</text>\n",
        hex(kNameColors[i].color), x, above + 10, x + 20, above + 17, kNameColors[i].name);
    x += 36.0 + 7.0 * static_cast<double>(kNameColors[i].name.size());
  }
  svg += fmt::format("<g id=\"grid\" transform=\"translate(0 {:.6g})\">\n", top);
  const auto middle_x = (layout.x(0) + layout.x(layout.columns) - layout.gap) / 2;
  svg += fmt::format("<text class=\"axis\" text-anchor=\"middle\" x=\"{}\" y=\"{}\">head</text>\n",
                     two_decimals(middle_x), two_decimals(layout.top - 58));
  svg += fmt::format("<text class=\"axis\" text-anchor=\"end\" x=\"{}\" y=\"{}\">layer</text>\n",
                     two_decimals(layout.left - 16), two_decimals(layout.top - 16));
  for (std::int64_t column = 0; column < layout.columns; ++column) {
    svg +=
        fmt::format("<text class=\"label\" text-anchor=\"middle\" x=\"{}\" y=\"{}\">{}</text>\n",
                    two_decimals(layout.x(column) + layout.side / 2), two_decimals(layout.top - 16),
                    scene::html::escape(grid.columns[static_cast<std::size_t>(column)]));
  }
  std::string grounds, labels;
  for (std::int64_t row = 0; row < layout.rows; ++row) {
    const GridRow& of_row = grid.rows[static_cast<std::size_t>(row)];
    labels +=
        fmt::format("<text class=\"label\" text-anchor=\"end\" x=\"{}\" y=\"{:.6g}\">{}</text>\n",
                    two_decimals(layout.left - 16), half(layout.y(row) + layout.side / 2) + 4,
                    scene::html::escape(of_row.label));
    for (const GridHead& head : of_row.heads) {
      grounds +=
          fmt::format("<rect class=\"ground\" x=\"{0}\" y=\"{1}\" width=\"{2}\" height=\"{2}\"/>\n",
                      two_decimals(layout.x(head.column)), two_decimals(layout.y(row)),
                      two_decimals(layout.side));
      const int place = name_place(head.name);
      if (place < 0) continue;
      labels += fmt::format("<rect fill=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n",
                            hex(kNameColors[static_cast<std::size_t>(place)].color),
                            two_decimals(layout.x(head.column)),
                            two_decimals(layout.y(row) + layout.side + 2),
                            two_decimals(layout.side), two_decimals(layout.bar));
      if (layout.caption == 0) continue;
      labels += fmt::format("<text class=\"caption\" x=\"{}\" y=\"{:.6g}\">{}</text>\n",
                            two_decimals(layout.x(head.column)),
                            half(layout.y(row) + layout.side + layout.bar + layout.caption) - 1,
                            scene::html::escape(head.name));
    }
  }
  svg += grounds;
  svg += fmt::format("<image id=\"heads\" width=\"{}\" height=\"{}\" href=\"{}\"/>\n",
                     two_decimals(layout.width()), two_decimals(layout.height()),
                     png_address(image_as_png(draw_heads(grid, layout), {})));
  return svg + labels + "</g>\n</svg>\n";
}

}  // namespace

HeadImage head_image(const MapCells& map) {
  constexpr double kQuantile = 0.995;
  const CellList cells(map);
  std::vector<double> weights;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells.kind(i) == CellKind::kWeight) weights.push_back(cells.value(i));
  }
  double top = 0.0;
  if (!weights.empty()) {
    const auto last = static_cast<double>(weights.size() - 1);
    const auto at = weights.begin() + std::lround(std::ceil(kQuantile * last));
    std::nth_element(weights.begin(), at, weights.end());
    top = *at > 0.0 ? *at : *std::max_element(at, weights.end());
  }
  if (!(top > 0.0)) top = 1.0;
  HeadImage image = {.width = map.columns(), .height = map.rows()};
  image.pixels.reserve(cells.size());
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const CellKind kind = cells.kind(i);
    std::uint8_t entry = kind == CellKind::kNan ? kNanEntry : kPaperEntry;
    if (kind == CellKind::kWeight) {
      const double heat = std::sqrt(std::clamp(cells.value(i) / top, 0.0, 1.0));
      entry = static_cast<std::uint8_t>(kFirstLevel + std::lround(heat * (kGridLevels - 1)));
    }
    image.pixels.push_back(entry);
  }
  return image;
}

std::int64_t grid_side(std::int64_t rows, std::int64_t columns) {
  // About 1100 x 2000 of the drawing, with heads from 24 to 160.
  const std::int64_t wide = 2200 / std::max<std::int64_t>(columns, 1);
  const std::int64_t high = 4400 / std::max<std::int64_t>(rows, 1);
  return std::clamp<std::int64_t>(std::min(wide, high) - 14, 48, 320) / 2 * 2;
}

std::string heads_as_png(const HeadGrid& grid, const std::vector<ImageText>& texts) {
  const GridLayout layout = layout_of(grid);
  IndexedImage image = draw_heads(grid, layout);
  image.transparent = false;
  constexpr std::int64_t kDouble = 2;
  const auto centered = [&](std::int64_t middle, std::int64_t top, std::string_view text,
                            std::uint8_t entry) {
    draw_letters(image, middle - letters_width(text) * kDouble / 2, top, text, entry, kDouble);
  };
  centered((layout.x(0) + layout.x(layout.columns) - layout.gap) / 2, GridLayout::kMargin, "head",
           kInkEntry);
  draw_letters(image, GridLayout::kMargin, layout.top - 2 * kLetterHeight - 16, "layer", kInkEntry,
               kDouble);
  for (std::int64_t column = 0; column < layout.columns; ++column) {
    centered(layout.x(column) + layout.side / 2, layout.top - 2 * kLetterHeight - 16,
             grid.columns[static_cast<std::size_t>(column)], kSoftEntry);
  }
  for (std::int64_t row = 0; row < layout.rows; ++row) {
    const GridRow& of_row = grid.rows[static_cast<std::size_t>(row)];
    draw_letters(image, layout.left - 16 - letters_width(of_row.label) * kDouble,
                 layout.y(row) + layout.side / 2 - kLetterHeight, of_row.label, kSoftEntry,
                 kDouble);
    for (const GridHead& head : of_row.heads) {
      const std::int64_t left = layout.x(head.column), top = layout.y(row);
      fill_box(image, left, top, layout.side, layout.side, kGroundEntry, true);
      const int place = name_place(head.name);
      if (place < 0) continue;
      fill_box(image, left, top + layout.side + 2, layout.side, layout.bar,
               static_cast<std::uint8_t>(kFirstNameEntry + place), false);
      if (layout.caption == 0) continue;
      const std::string_view caption = kNameColors[static_cast<std::size_t>(place)].caption;
      draw_letters(image, left, top + layout.side + layout.bar + 8, caption, kSoftEntry,
                   letters_width(caption) * kDouble <= layout.side ? kDouble : 1);
    }
  }
  return image_as_png(std::move(image), texts);
}

std::string heads_as_svg(const HeadGrid& grid) { return draw_grid(grid, true); }

std::string heads_as_html(const HeadGrid& grid) {
  using scene::html::escape;
  const GridLayout layout = layout_of(grid);
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{0}</title>\n"
      "<style>\n{1}</style></head>\n<body>\n<h1>{0}</h1>\n",
      escape(grid.title), kHeadsPageStyle);
  for (const std::string& line : grid.lines) page += fmt::format("<p>{}</p>\n", escape(line));
  page += "<figure>\n" + draw_grid(grid, false) +
          "</figure>\n<div id=\"told\"><canvas width=\"320\" height=\"320\"></canvas><div "
          "id=\"facts\"></div></div>\n";
  std::string facts;
  for (std::size_t r = 0; r < grid.rows.size(); ++r) {
    for (const GridHead& head : grid.rows[r].heads) {
      std::string list;
      for (const std::string& fact : head.facts) {
        list += (list.empty() ? "" : ",") + script_json_string(fact);
      }
      facts += fmt::format("{}\n  \"{},{}\": [{}]", facts.empty() ? "" : ",", r, head.column, list);
    }
  }
  page += fmt::format(
      "<script>\nconst heads = {{left: {}, top: {}, side: {}, stepX: {}, stepY: {}, facts: "
      "{{{}}}}};"
      "\n\n{}</script>\n",
      layout.left, layout.top, layout.side, layout.step_x(), layout.step_y(), facts,
      kHeadsPageScript);
  return page + "</body>\n</html>\n";
}

}  // namespace fovea
