// SPDX-License-Identifier: Apache-2.0
//
// Converts matrices to tables (limited to the first and last rows and columns if there are many)
// and pictures, and selects and escapes notes (story_parts.h).

#include "scene/tell/story_parts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "scene/read/step_catalogue.h"
#include "text/text_width.h"

namespace fovea::scene {
namespace {

constexpr std::int64_t kFewColumns = 16;  // tables up to this many rows and columns are complete

/// Returns the largest finite value, which gets the darkest shade.
double hottest(const StepLayout& layout, std::int64_t item, std::int64_t head) {
  double most = 0.0;
  for (std::int64_t i = 0; i < layout.rows; ++i) {
    for (std::int64_t j = 0; j < layout.cols; ++j) {
      const double value = layout.at(item, head, 0, i, j);
      if (std::isfinite(value)) most = std::max(most, value);
    }
  }
  return most;
}

/// Returns the heat of a number that is not masked: NaN for infinities, because -inf is the heat of
/// a masked one.
double heat_of(double value) { return std::isinf(value) ? std::nan("") : value; }

/// Splits a note into lines and escapes each. Empty lines at either end are dropped. Splitting
/// comes first because escaping would turn line breaks into visible text.
Note lines_of(std::string_view text) {
  Note lines;
  std::size_t seen = 0;  // number of lines up to the last non-empty one
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of("\r\n"), text.size());
    std::string line(text.substr(0, end));
    std::replace(line.begin(), line.end(), '\t', ' ');
    line.erase(0, line.find_first_not_of(' '));
    line.erase(line.find_last_not_of(' ') + 1);
    text.remove_prefix(std::min(end + (text.substr(end).starts_with("\r\n") ? 2 : 1), text.size()));
    if (line.empty() && lines.empty()) continue;
    lines.push_back(visible(line));
    if (!line.empty()) seen = lines.size();
  }
  lines.resize(seen);
  return lines;
}

}  // namespace

std::vector<std::int64_t> shown_positions(std::int64_t count, std::int64_t few, std::int64_t keep) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < count; ++i) {
    if (count <= few || i < few / 2 || i >= count - few / 4 || i == keep) {
      result.push_back(i);
    } else if (result.back() != -1) {
      result.push_back(-1);
    }
  }
  return result;
}

StoryParts::StoryParts(const Trace& trace)
    : model_(trace), many_(std::max(model_.queries(), model_.keys()) > kFewWords) {}

Section StoryParts::section(const std::string& title, const std::string& step) const {
  const StepInfo& info = step_info(step);
  const Step* found = find(step);
  return {title,
          found != nullptr ? found->formula : std::string(info.formula),
          step_reading(step, !scene().options.score.sinks.empty()),
          {},
          {},
          {}};
}

void StoryParts::add_formulas(Section& section, const std::vector<std::string>& steps) const {
  for (const std::string& step : steps) {
    if (find(step) != nullptr) section.formulas.push_back(step_formula(step, scene()));
  }
}

std::vector<Note> StoryParts::notes(const std::vector<std::string>& steps) const {
  std::vector<Note> result;
  for (const auto& [step, text] : scene().notes) {
    if (std::find(steps.begin(), steps.end(), step) == steps.end()) continue;
    Note note = lines_of(text);
    if (!note.empty()) result.push_back(std::move(note));
  }
  return result;
}

std::string StoryParts::suffix(reference::Normalization normalization) const {
  const bool main = normalization == scene().normalizations.back();
  return main ? "" : fmt::format("[{}]", normalization_name(normalization));
}

std::vector<std::string> StoryParts::weight_steps(const std::string& prefix) const {
  std::vector<std::string> names;
  for (const char* base :
       {"shifted_scores", "exponentials", "exponential_sums", "weights", "row_sums"}) {
    names.push_back(prefix + base);
    for (const auto normalization : scene().normalizations) {
      names.push_back(fmt::format("{}{}[{}]", prefix, base, normalization_name(normalization)));
    }
  }
  return names;
}

std::vector<std::string> StoryParts::words(Axis axis, std::int64_t item) const {
  std::vector<std::string> result;
  const std::int64_t count = axis == Axis::kKeys ? model_.keys() : model_.queries();
  for (std::int64_t i = 0; i < count; ++i) result.push_back(visible(model_.word(axis, item, i)));
  return result;
}

void StoryParts::add_matrices(Section& target, const std::string& step,
                              const std::string& caption) const {
  const Step* found = find(step);
  if (found == nullptr) return;
  const StepLayout layout = model_.layout(*found);
  const bool as_picture = many_ && layout.weights;
  for (std::int64_t item = 0; item < layout.batch; ++item) {
    for (std::int64_t head = 0; head < layout.heads; ++head) {
      std::string text = caption;
      const std::string where = place_of(layout, item, head);
      if (!where.empty()) text += (text.empty() ? "" : ", ") + where;
      if (as_picture) {
        target.blocks.push_back(picture(layout, item, head));
        std::get<Picture>(target.blocks.back()).caption = text;
      } else {
        target.blocks.push_back(table(layout, item, head));
        std::get<Table>(target.blocks.back()).caption = text;
      }
    }
  }
}

Table StoryParts::table(const StepLayout& layout, std::int64_t item, std::int64_t head) const {
  Table result;
  result.heat = layout.weights;
  // The row of the focus query, also in tables of keys if queries and keys are the same words.
  const bool has_focus =
      scene().focus && scene().focus->item == item &&
      (layout.row_axis == Axis::kQueries || (layout.row_axis == Axis::kKeys && !scene().source));
  const std::int64_t focus_row = has_focus ? scene().focus->index : -1;
  const auto rows = shown_positions(layout.rows, kFewColumns, focus_row);
  const auto columns = shown_positions(layout.cols, kFewColumns, -1);
  const auto name = [&](Axis axis, std::int64_t i) {
    return i < 0                    ? "…"
           : axis == Axis::kNumbers ? fmt::format("{}", i)
                                    : visible(model_.word(axis, item, i));
  };
  for (const std::int64_t j : columns) result.columns.push_back({name(layout.col_axis, j)});

  const StepNumbers& numbers = model_.numbers(*layout.step);
  const double most = result.heat ? hottest(layout, item, head) : 0.0;
  for (const std::int64_t i : rows) {
    TableRow row;
    row.label = layout.row_axis == Axis::kNumbers && i >= 0 ? "" : name(layout.row_axis, i);
    row.focus = i >= 0 && i == focus_row;
    for (const std::int64_t j : columns) {
      if (i < 0 || j < 0) {
        row.cells.push_back({"…"});
        continue;
      }
      const double value = layout.at(item, head, 0, i, j);
      const bool masked = layout.maskable && model_.masked(item, head, i, j);
      Cell cell{masked ? std::string(kMaskedMark) : numbers.text(value)};
      if (result.heat) cell.heat = masked ? -HUGE_VAL : heat_of(most > 0.0 ? value / most : value);
      row.cells.push_back(std::move(cell));
    }
    result.rows.push_back(std::move(row));
  }
  return result;
}

Picture StoryParts::picture(const StepLayout& layout, std::int64_t item, std::int64_t head) const {
  Picture result{
      {}, Tensor(DType::kFloat64, {layout.rows, layout.cols}), words(Axis::kQueries, item)};
  for_each_index(result.weights.shape(), [&](const Index& at) {
    result.weights.at<double>(at) = model_.masked(item, head, at[0], at[1])
                                        ? -HUGE_VAL
                                        : heat_of(layout.at(item, head, 0, at[0], at[1]));
  });
  return result;
}

}  // namespace fovea::scene
