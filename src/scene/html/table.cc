// SPDX-License-Identifier: Apache-2.0
//
// Heat maps (table.h). Each cell's style has a heat from 0 to 1, which the style sheet maps to a
// background colour. The numbers of pictures are in the page's data, and the script draws them.

#include "scene/html/table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "scene/read/step_catalogue.h"
#include "scene/trace/pooled.h"
#include "text/html_escape.h"

namespace fovea::scene::html {
namespace {

constexpr std::size_t kStrongest = 10;
constexpr std::size_t kLongWord = 12;  // bytes; the style sheet never truncates shorter words

/// One matrix of a step.
struct Plane {
  const TraceModel& model;
  const Texts& texts;
  const StepLayout& layout;
  const StepNumbers& numbers;
  std::int64_t item;
  std::int64_t head;
  std::int64_t plane;

  double at(std::int64_t row, std::int64_t col) const {
    return layout.at(item, head, plane, row, col);
  }
  bool masked(std::int64_t row, std::int64_t col) const {
    return layout.maskable && model.masked(item, head, row, col);
  }
  std::string name(Axis axis, std::int64_t index) const {
    return axis == Axis::kNumbers ? std::to_string(index)
                                  : std::string(model.word(axis, item, index));
  }
};

std::string axis_name(const Plane& at, Axis axis) {
  if (axis == Axis::kNumbers) return at.texts("axis.numbers");
  if (at.layout.col_axis == Axis::kKeys) {
    return at.texts(axis == Axis::kKeys ? "axis.keys" : "axis.queries");
  }
  return at.texts(at.model.scene().source && axis == Axis::kKeys ? "axis.source" : "axis.words");
}

/// Describes the dimensions of a matrix, such as "6 queries down, 6 keys across".
std::string describe(const Plane& at) {
  const StepLayout& layout = at.layout;
  const std::string rows = std::to_string(layout.rows);
  const std::string cols = std::to_string(layout.cols);
  if (layout.row_axis == Axis::kNumbers) {
    return at.texts("table.in_out", {{"rows", rows}, {"cols", cols}});
  }
  return at.texts("table.size", {{"rows", rows},
                                 {"down", axis_name(at, layout.row_axis)},
                                 {"cols", cols},
                                 {"across", axis_name(at, layout.col_axis)}});
}

/// Returns "Sentence 1 of 2, head 1", "head 1", or an empty string.
std::string plane_label(const Plane& at) {
  std::string out;
  const auto add = [&](std::string_view text) {
    if (!out.empty()) out += at.texts("list.comma");
    out += text;
  };
  if (at.layout.has_batch && at.layout.batch > 1)
    add(at.texts("place.item",
                 {{"n", std::to_string(at.item + 1)}, {"count", std::to_string(at.layout.batch)}}));
  if (at.layout.has_heads) add(at.texts("place.head", {{"n", std::to_string(at.head)}}));
  if (at.layout.planes > 1) {
    add(at.texts("place.query",
                 {{"word", isolate(at.model.word(Axis::kQueries, at.item, at.plane))}}));
  }
  return out;
}

std::string table(const Plane& at, const Step* row_sums) {
  const StepLayout& layout = at.layout;
  std::string out =
      fmt::format("<div class=\"scroll\"><table class=\"heat{}\"><caption>{}</caption>",
                  layout.weights ? " share" : "", describe(at));
  out += "<thead><tr><td></td>";
  for (std::int64_t col = 0; col < layout.cols; ++col) {
    out += heading("col", at.name(layout.col_axis, col), "");
  }
  if (row_sums != nullptr) {
    out += heading("col", at.texts.plain("table.sum"),
                   fmt::format(" data-step=\"{}\"", row_sums->name));
  }
  out += "</tr></thead><tbody>\n";
  for (std::int64_t row = 0; row < layout.rows; ++row) {
    out += "<tr>" + heading("row", at.name(layout.row_axis, row), "");
    for (std::int64_t col = 0; col < layout.cols; ++col) {
      out += at.masked(row, col) ? masked_cell(at.texts) : heat_cell(at.numbers, at.at(row, col));
    }
    if (row_sums != nullptr) {
      const double sum = at.model.layout(*row_sums).at(at.item, at.head, 0, row, 0);
      out += fmt::format("<td class=\"sum\">{}</td>", at.model.numbers(*row_sums).text(sum));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>";
}

/// Lists the largest numbers of a matrix, because a picture shows no numbers.
std::string strongest(const Plane& at) {
  std::vector<std::tuple<double, std::int64_t, std::int64_t>> cells;
  for (std::int64_t row = 0; row < at.layout.rows; ++row) {
    for (std::int64_t col = 0; col < at.layout.cols; ++col) {
      const double value = at.at(row, col);
      if (!at.masked(row, col) && std::isfinite(value)) cells.emplace_back(-value, row, col);
    }
  }
  const std::size_t count = std::min(kStrongest, cells.size());
  std::partial_sort(cells.begin(), cells.begin() + static_cast<std::ptrdiff_t>(count), cells.end());
  std::string out =
      fmt::format("<p class=\"small\">{}</p><ol class=\"top\">", at.texts("table.strongest"));
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [value, row, col] = cells[i];
    // The position distinguishes repeated words.
    out += fmt::format("<li>{} \u00B7 {} \u2192 {} \u00B7 {} <b>{}</b></li>",
                       isolate(at.model.word(Axis::kQueries, at.item, row)), row,
                       isolate(at.model.word(Axis::kKeys, at.item, col)), col,
                       escape(at.numbers.text(-value)));
  }
  return count == 0 ? "" : out + "</ol>";
}

/// Maximum number of rows and columns of a table that is read from a distance.
constexpr std::int64_t kMaxStillTable = 16;
/// Draws a matrix with at most this many rows and columns.
constexpr std::int64_t kStillCells = 48;
constexpr int kShades = 40;

/// Returns a matrix as SVG with a path for each shade, so that no script is needed.
std::string still(const Plane& at, const std::string& about) {
  Tensor values(DType::kFloat64, {at.layout.rows, at.layout.cols});
  for_each_index(values.shape(), [&](const Index& i) {
    values.at<double>(i) = at.masked(i[0], i[1]) ? -HUGE_VAL : at.at(i[0], i[1]);
  });
  const Tensor cells = pooled_mean(values, kStillCells, kStillCells);
  double most = 0.0;
  for (const double value : cells.span<double>()) {
    if (std::isfinite(value)) most = std::max(most, std::abs(value));
  }
  std::map<int, std::string> paths;  // by the shade, negative for negative numbers
  for_each_index(cells.shape(), [&](const Index& i) {
    const double value = cells.at<double>(i);
    if (!std::isfinite(value) || most == 0.0) return;
    const int shade = static_cast<int>(std::lround(kShades * (value / most)));
    if (shade != 0) paths[shade] += fmt::format("M{} {}h1v1h-1z", i[1], i[0]);
  });
  std::string out = fmt::format(
      "<svg class=\"still{}\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" "
      "role=\"img\" aria-label=\"{}\">",
      at.layout.weights ? " share" : "", cells.extent(1), cells.extent(0), about);
  for (const auto& [shade, path] : paths) {
    out += fmt::format("<path{} style=\"--v:{:.2f}\" d=\"{}\"/>", shade < 0 ? " class=\"n\"" : "",
                       static_cast<double>(std::abs(shade)) / kShades, path);
  }
  return out + "</svg>";
}

std::string picture(const Plane& at, bool is_still) {
  const StepLayout& layout = at.layout;
  const std::string about = at.texts(
      "table.picture",
      {{"step", escape(step_title(at.layout.step->name, at.texts))}, {"size", describe(at)}});
  if (is_still) {
    const bool pooled = std::max(layout.rows, layout.cols) > kStillCells;
    const std::string size =
        pooled ? at.texts("slides.pooled", {{"rows", std::to_string(layout.rows)},
                                            {"cols", std::to_string(layout.cols)}})
               : describe(at);
    return still(at, about) + fmt::format("<p class=\"small\">{}</p>", size);
  }
  std::string out = fmt::format(
      "<div class=\"scroll\"><canvas class=\"{}\" width=\"{}\" height=\"{}\" role=\"img\" "
      "aria-label=\"{}\">{} ({})</canvas></div><p class=\"small\">{}</p>",
      layout.weights ? "share" : "signed", layout.cols, layout.rows, about, about,
      at.texts("table.script"), describe(at));
  if (layout.weights) out += strongest(at);
  return out;
}

}  // namespace

bool fits_table(const StepLayout& layout) {
  return layout.rows <= kMaxTableRows && layout.cols <= kMaxTableCols &&
         layout.batch * layout.heads * std::min(layout.planes, kMaxPlanes) * layout.rows *
                 layout.cols <=
             kMaxTableCells;
}

std::string head_data(std::int64_t head, std::int64_t heads) {
  return fmt::format(" data-head=\"{}\"{}", head,
                     heads > 1 ? fmt::format(" data-heads=\"{}\"", heads) : "");
}

std::string heading(std::string_view scope, std::string_view word, std::string_view attributes) {
  const std::string title =
      word.size() > kLongWord ? fmt::format(" title=\"{}\"", escape(word)) : std::string();
  return fmt::format("<th scope=\"{}\"{}{}>{}</th>", scope, attributes, title, isolate(word));
}

std::string masked_cell(const Texts& texts) {
  return fmt::format("<td class=\"m\" aria-label=\"{}\">{}</td>", texts("table.masked"),
                     kMaskedMark);
}

std::string mask_legend(const Texts& texts) {
  return fmt::format("<p class=\"small legend\">{}</p>\n", texts("remark.masked"));
}

std::string heat_cell(const StepNumbers& numbers, double value) {
  const std::string text = escape(numbers.text(value));  // "<0.0001"
  if (!std::isfinite(value)) return fmt::format("<td class=\"odd\">{}</td>", text);
  const double share = numbers.largest() > 0 ? std::abs(value) / numbers.largest() : 0.0;
  return fmt::format("<td{} style=\"--v:{:.2f}\">{}</td>", value < 0 ? " class=\"n\"" : "", share,
                     text);
}

std::string heat_maps(const TraceModel& model, const Texts& texts, const Step& step,
                      const Step* row_sums, const MapOptions& options) {
  const StepLayout layout = model.layout(step);
  const StepNumbers& numbers = model.numbers(step);
  const bool as_table =
      fits_table(layout) && !(options.still && std::max(layout.rows, layout.cols) > kMaxStillTable);
  const bool all_planes = layout.planes <= (options.still ? 1 : kMaxPlanes);
  const std::int64_t focus = model.scene().focus ? model.scene().focus->index : 0;

  std::string out = "<div class=\"maps\">\n";
  for (std::int64_t item = 0; item < layout.batch; ++item) {
    if (layout.has_batch && options.item >= 0 && options.item != item) continue;
    for (std::int64_t head = 0; head < layout.heads; ++head) {
      for (std::int64_t plane = 0; plane < layout.planes; ++plane) {
        if (!all_planes && plane != focus) continue;
        const Plane at{model, texts, layout, numbers, item, head, plane};
        out += fmt::format("<figure class=\"map\" data-step=\"{}\" data-item=\"{}\"{}", step.name,
                           layout.has_batch ? item : -1, head_data(head, layout.heads));
        if (layout.planes > 1) out += fmt::format(" data-plane=\"{}\"", plane);
        out += ">";
        const std::string label = plane_label(at);
        if (!label.empty()) out += "<figcaption>" + label + "</figcaption>";
        out += as_table ? table(at, row_sums) : picture(at, options.still);
        out += "</figure>\n";
      }
    }
  }
  out += "</div>\n";
  if (!all_planes) {
    out += fmt::format("<p class=\"small\">{}</p>", texts("table.one_plane"));
  }
  if (row_sums != nullptr && !as_table) {
    const StepNumbers& sums = model.numbers(*row_sums);
    out += fmt::format("<p class=\"small\" data-step=\"{}\">{}</p>", row_sums->name,
                       texts("table.largest_sum", {{"n", sums.text(sums.largest())}}));
  }
  return out;
}

}  // namespace fovea::scene::html
