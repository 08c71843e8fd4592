// SPDX-License-Identifier: Apache-2.0
//
// SVGs and pages of maps (svg.h). Small maps draw every cell as a rectangle, which is sharp at any
// size; larger ones embed a PNG. Masked cells are not drawn, so that the hatched background shows.

#include "picture/svg.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "json/json_text.h"
#include "picture/base64.h"
#include "picture/png.h"
#include "text/html_escape.h"
#include "text/text_width.h"

namespace fovea {

// page/map_svg.css, page/map.css and page/map.js, embedded by the build.
extern const std::string_view kMapSvgStyle;
extern const std::string_view kMapPageStyle;
extern const std::string_view kMapPageScript;

namespace {

using scene::html::escape;

constexpr double kSide = 720.0;        // length of the longer side, unless it has more cells
constexpr double kLargestCell = 44.0;  // maximum side of a cell
constexpr double kThinnest = 28.0;     // minimum side of the plot; keeps a map of one query visible
constexpr std::int64_t kMaxRects = 2500;
constexpr double kLetter = 7.0;  // approximate width of a letter in labels
constexpr int kTokenColumns = 16;
constexpr double kLabelRoom = 11.0;  // minimum height of a label

/// Label of an axis. `at` is the middle of the labelled cell as a fraction of the axis.
struct AxisLabel {
  double at = 0.0;
  std::string words;
};

/// Axis of a map: its range of queries or keys, the number of cells, and the length in the drawing.
struct Axis {
  IndexRange of;
  std::int64_t cells = 1;
  double length = 0.0;
  bool named = false;  // each cell is labelled with its token
  std::vector<AxisLabel> labels = {};
};

double label_width(const Axis& axis) {
  int columns = 1;
  for (const AxisLabel& label : axis.labels) {
    columns = std::max(columns, display_width(label.words));
  }
  return columns * kLetter;
}

/// Labels every cell with its token if there is room; otherwise labels the round numbers.
void add_labels(Axis& axis, const std::vector<std::string>& tokens) {
  const double cell = axis.length / static_cast<double>(axis.cells);
  const auto middle = [&axis](std::int64_t number) {
    return (static_cast<double>(number - axis.of.begin) + 0.5) /
           static_cast<double>(axis.of.size());
  };
  axis.named = !tokens.empty() && axis.cells == axis.of.size() && cell >= kLabelRoom;
  if (axis.named) {
    for (std::int64_t i = axis.of.begin; i < axis.of.end; ++i) {
      const std::string name = scene::html::visible(token_of(tokens, i));
      axis.labels.push_back({middle(i), fit(name, kTokenColumns)});
    }
    return;
  }
  constexpr double kNumberRoom = 52.0;
  const double each = axis.length / static_cast<double>(axis.of.size());
  std::int64_t step = 1;
  for (std::int64_t power = 1; static_cast<double>(step) * each < kNumberRoom; power *= 10) {
    for (const std::int64_t digit : {1, 2, 5}) {
      step = digit * power;
      if (static_cast<double>(step) * each >= kNumberRoom) break;
    }
  }
  for (std::int64_t i = (axis.of.begin + step - 1) / step * step; i < axis.of.end; i += step) {
    axis.labels.push_back({middle(i), std::to_string(i)});
  }
  // A range in the middle of a long axis may contain no round number.
  if (axis.labels.empty()) {
    axis.labels.push_back({middle(axis.of.begin), std::to_string(axis.of.begin)});
  }
}

/// Layout of the drawing.
struct Drawing {
  const MapCells& map;
  const MapLook& look;
  const MapWords& words;
  Scale scale;
  Axis across = {};
  Axis down = {};
  double left = 0.0;
  double top = 0.0;
  double width = 0.0;
  double height = 0.0;

  double cell_width() const { return across.length / static_cast<double>(across.cells); }
  double cell_height() const { return down.length / static_cast<double>(down.cells); }
};

/// Sets the size of the plot. Cells are square unless the plot would be too thin to see.
void set_lengths(Axis& across, Axis& down) {
  const auto columns = static_cast<double>(across.cells);
  const auto rows = static_cast<double>(down.cells);
  const double most = std::max(columns, rows);
  const double side = std::clamp(kSide / most, 1.0, kLargestCell);
  across.length = std::max(columns * side, kThinnest);
  down.length = std::max(rows * side, kThinnest);
}

Drawing make_drawing(const MapCells& map, const MapLook& look, const MapWords& words,
                     double title_height) {
  Drawing drawing{.map = map, .look = look, .words = words, .scale = Scale(look.tone, map)};
  drawing.across = {.of = map.keys, .cells = map.columns()};
  drawing.down = {.of = map.queries, .cells = map.rows()};
  set_lengths(drawing.across, drawing.down);
  add_labels(drawing.across, words.key_tokens);
  add_labels(drawing.down, words.query_tokens);
  constexpr double kMargin = 14.0, kAxisTitle = 22.0, kBar = 120.0;
  constexpr double kLean = 0.7;  // token labels are rotated by 45 degrees
  drawing.left = kMargin + kAxisTitle + label_width(drawing.down) + 8.0;
  double below = kMargin + kAxisTitle + 20.0;
  if (drawing.across.named) {
    const double reach = label_width(drawing.across) * kLean;
    below += reach;
    drawing.left = std::max(drawing.left, reach);
  }
  drawing.top = kMargin + title_height;
  // The legend and the colour bar are next to the plot and need this height even if the plot is
  // shorter.
  constexpr double kBesides = 200.0;
  drawing.width = drawing.left + drawing.across.length + kBar;
  drawing.height = drawing.top + std::max(drawing.down.length + below, kBesides);
  return drawing;
}

void add_cells(std::string& svg, const Drawing& drawing) {
  const MapCells& map = drawing.map;
  const double wide = drawing.cell_width(), high = drawing.cell_height();
  const double gap = std::min(wide, high) >= 14.0 ? 1.0 : 0.0;
  for (std::int64_t r = 0; r < map.rows(); ++r) {
    for (std::int64_t c = 0; c < map.columns(); ++c) {
      const CellKind kind = kind_of(map, r, c);
      if (kind == CellKind::kMasked) continue;
      const ColorMap colors = drawing.look.colors;
      const Rgb color = kind == CellKind::kNan
                            ? nan_color(colors)
                            : color_of(colors, drawing.scale.heat(map.value(r, c)));
      svg += fmt::format(
          "<rect x=\"{:.6g}\" y=\"{:.6g}\" width=\"{:.6g}\" height=\"{:.6g}\" "
          "fill=\"{}\"/>\n",
          drawing.left + wide * static_cast<double>(c), drawing.top + high * static_cast<double>(r),
          wide - gap, high - gap, hex(color));
    }
  }
}

void add_image(std::string& svg, const Drawing& drawing) {
  const std::string png = map_as_png(drawing.map, drawing.look, {});
  // Nearest-neighbour scaling would drop cells arbitrarily if cells were smaller than pixels.
  const bool sharp = std::min(drawing.cell_width(), drawing.cell_height()) >= 1.5;
  svg += fmt::format(
      "<image x=\"{:.6g}\" y=\"{:.6g}\" width=\"{:.6g}\" height=\"{:.6g}\" "
      "preserveAspectRatio=\"none\"{} href=\"{}\"/>\n",
      drawing.left, drawing.top, drawing.across.length, drawing.down.length,
      sharp ? " style=\"image-rendering:pixelated\"" : "", png_address(png));
}

void add_axes(std::string& svg, const Drawing& drawing) {
  const double bottom = drawing.top + drawing.down.length;
  for (const AxisLabel& label : drawing.down.labels) {
    const double y = drawing.top + label.at * drawing.down.length;
    svg += fmt::format(
        "<path class=\"tick\" d=\"M{:.6g} {:.6g}h-4\"/>"
        "<text class=\"label\" text-anchor=\"end\" x=\"{:.6g}\" y=\"{:.6g}\">{}</text>\n",
        drawing.left, y, drawing.left - 8, y + 4, escape(label.words));
  }
  for (const AxisLabel& label : drawing.across.labels) {
    const double x = drawing.left + label.at * drawing.across.length;
    svg += fmt::format("<path class=\"tick\" d=\"M{:.6g} {:.6g}v4\"/>", x, bottom);
    if (drawing.across.named) {
      svg += fmt::format(
          "<text class=\"label\" text-anchor=\"end\" transform=\"translate({:.6g} "
          "{:.6g}) rotate(-45)\">{}</text>\n",
          x + 4, bottom + 13, escape(label.words));
    } else {
      svg += fmt::format(
          "<text class=\"label\" text-anchor=\"middle\" x=\"{:.6g}\" "
          "y=\"{:.6g}\">{}</text>\n",
          x, bottom + 18, escape(label.words));
    }
  }
  const double down_middle = drawing.top + drawing.down.length / 2;
  svg += fmt::format(
      "<text class=\"axis\" text-anchor=\"middle\" transform=\"translate(20 {:.6g}) "
      "rotate(-90)\">{}</text>\n",
      down_middle, escape(drawing.words.down));
  const double under = drawing.across.named ? label_width(drawing.across) * 0.7 + 32.0 : 38.0;
  svg += fmt::format(
      "<text class=\"axis\" text-anchor=\"middle\" x=\"{:.6g}\" y=\"{:.6g}\">{}</text>\n",
      drawing.left + drawing.across.length / 2, bottom + under, escape(drawing.words.across));
}

void add_color_bar(std::string& svg, const Drawing& drawing) {
  constexpr double kThick = 14.0, kGap = 22.0;
  const double x = drawing.left + drawing.across.length + kGap;
  bool masked = false, nan = false;
  for (std::int64_t r = 0; r < drawing.map.rows(); ++r) {
    for (std::int64_t c = 0; c < drawing.map.columns(); ++c) {
      const CellKind kind = kind_of(drawing.map, r, c);
      masked = masked || kind == CellKind::kMasked;
      nan = nan || kind == CellKind::kNan;
    }
  }
  const double legend = (masked ? 24.0 : 0.0) + (nan ? 24.0 : 0.0);
  const double high = std::clamp(drawing.down.length - legend, 100.0, 320.0);
  svg += "<defs><linearGradient id=\"bar\" x1=\"0\" y1=\"1\" x2=\"0\" y2=\"0\">";
  constexpr int kLegendStops = 20;
  for (int i = 0; i <= kLegendStops; ++i) {
    const double at = static_cast<double>(i) / kLegendStops;
    svg += fmt::format("<stop offset=\"{:.3g}\" stop-color=\"{}\"/>", at,
                       hex(color_of(drawing.look.colors, at)));
  }
  svg += fmt::format(
      "</linearGradient></defs>\n<rect class=\"frame\" fill=\"url(#bar)\" x=\"{:.6g}\" "
      "y=\"{:.6g}\" width=\"{:.6g}\" height=\"{:.6g}\"/>\n",
      x, drawing.top, kThick, high);
  for (const Scale::Tick& tick : drawing.scale.ticks(18.0 / high)) {
    const double y = drawing.top + high * (1.0 - drawing.scale.heat(tick.value));
    svg += fmt::format(
        "<path class=\"tick\" d=\"M{:.6g} {:.6g}h4\"/><text class=\"label\" "
        "x=\"{:.6g}\" y=\"{:.6g}\">{}</text>\n",
        x + kThick, y, x + kThick + 8, y + 4, tick.words);
  }
  double y = drawing.top + high + 14.0;
  const auto add_swatch = [&](const std::string& fill, const char* name) {
    svg += fmt::format(
        "<rect class=\"frame\" fill=\"{}\" x=\"{:.6g}\" y=\"{:.6g}\" width=\"14\" "
        "height=\"14\"/><text class=\"label\" x=\"{:.6g}\" y=\"{:.6g}\">{}</text>\n",
        fill, x, y, x + kThick + 8, y + 11, name);
    y += 24.0;
  };
  if (masked) add_swatch("url(#masked)", "masked");
  if (nan) add_swatch(hex(nan_color(drawing.look.colors)), "nan");
}

/// Returns the drawing as an SVG. `titled` adds title and text, for a standalone file.
std::string draw(const MapCells& map, const MapLook& look, const MapWords& words, bool titled) {
  constexpr double kLine = 18.0;
  const double title_height = titled ? 38.0 + kLine * static_cast<double>(words.lines.size()) : 0.0;
  Drawing drawing = make_drawing(map, look, words, title_height);
  if (titled) {
    int columns = display_width(words.title) * 3 / 2;
    for (const std::string& line : words.lines) columns = std::max(columns, display_width(line));
    drawing.width = std::max(drawing.width, 28.0 + columns * 6.6);
  }
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\">\n<style>\n{3}</style>\n"
      "<defs><pattern id=\"masked\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
      "<rect class=\"ground\" width=\"6\" height=\"6\"/><path class=\"hatch\" d=\"M-1 7L7 -1M-1 "
      "1L1 -1M5 7L7 5\"/></pattern></defs>\n",
      std::ceil(drawing.width), std::ceil(drawing.height), escape(words.title), kMapSvgStyle);
  if (titled) {
    svg += fmt::format(
        "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n<text class=\"title\" "
        "x=\"14\" y=\"28\">{}</text>\n",
        escape(words.title));
    double y = 28.0;
    for (const std::string& line : words.lines) {
      y += kLine;
      svg +=
          fmt::format("<text class=\"label\" x=\"14\" y=\"{:.6g}\">{}</text>\n", y, escape(line));
    }
  }
  svg += fmt::format(
      "<rect id=\"plot\" fill=\"url(#masked)\" x=\"{:.6g}\" y=\"{:.6g}\" "
      "width=\"{:.6g}\" height=\"{:.6g}\"/>\n<g shape-rendering=\"crispEdges\">\n",
      drawing.left, drawing.top, drawing.across.length, drawing.down.length);
  if (map.rows() * map.columns() <= kMaxRects) {
    add_cells(svg, drawing);
  } else {
    add_image(svg, drawing);
  }
  svg += fmt::format(
      "</g>\n<rect class=\"frame\" fill=\"none\" x=\"{:.6g}\" y=\"{:.6g}\" "
      "width=\"{:.6g}\" height=\"{:.6g}\"/>\n",
      drawing.left, drawing.top, drawing.across.length, drawing.down.length);
  add_axes(svg, drawing);
  add_color_bar(svg, drawing);
  return svg + "</svg>\n";
}

/// Encodes the values of all cells for the page: -1 for masked cells, NaN unchanged.
std::string cell_numbers(const MapCells& map) {
  std::vector<float> numbers;
  numbers.reserve(static_cast<std::size_t>(map.rows() * map.columns()));
  for (std::int64_t r = 0; r < map.rows(); ++r) {
    for (std::int64_t c = 0; c < map.columns(); ++c) {
      numbers.push_back(map.masked(r, c) ? -1.0F : static_cast<float>(map.value(r, c)));
    }
  }
  return base64(std::span(reinterpret_cast<const unsigned char*>(numbers.data()),
                          numbers.size() * sizeof(float)));
}

std::string token_list(const std::vector<std::string>& tokens, IndexRange of) {
  std::string list = "[";
  for (std::int64_t i = of.begin; !tokens.empty() && i < of.end; ++i) {
    list += (i > of.begin ? "," : "") + script_json_string(token_of(tokens, i));
  }
  return list + "]";
}

}  // namespace

std::string map_as_svg(const MapCells& map, const MapLook& look, const MapWords& words) {
  return draw(map, look, words, true);
}

std::string map_as_html(const MapCells& map, const MapLook& look, const MapWords& words) {
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{0}</title>\n"
      "<style>\n{1}</style></head>\n<body>\n<h1>{0}</h1>\n",
      escape(words.title), kMapPageStyle);
  for (const std::string& line : words.lines) page += fmt::format("<p>{}</p>\n", escape(line));
  page +=
      "<figure>\n" + draw(map, look, words, false) + "</figure>\n<output id=\"told\"></output>\n";
  const auto span_json = [](IndexRange span) {
    return fmt::format("[{},{}]", span.begin, span.end);
  };
  page += fmt::format(
      "<script>\nconst map = {{rows: {}, columns: {}, queries: {}, keys: {}, "
      "pool: "
      "\"{}\", names: [{}, {}, {}],\n  queryTokens: {},\n  keyTokens: {},\n  cells: "
      "\"{}\"}};\n\n{}</script>\n",
      map.rows(), map.columns(), span_json(map.queries), span_json(map.keys), pool_name(map.pool),
      script_json_string(words.down), script_json_string(words.across),
      script_json_string(words.value), token_list(words.query_tokens, map.queries),
      token_list(words.key_tokens, map.keys), cell_numbers(map), kMapPageScript);
  return page + "</body>\n</html>\n";
}

}  // namespace fovea
