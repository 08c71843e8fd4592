// SPDX-License-Identifier: Apache-2.0
//
// Renders the story for a terminal: sections with aligned tables and heat maps, in colour or as
// shades, never wider than the terminal.

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "fovea/scene.h"

#include "scene/tell/palette.h"
#include "scene/tell/story.h"
#include "scene/tell/story_parts.h"
#include "scene/trace/pooled.h"
#include "text/text_width.h"

namespace fovea::scene {
namespace {

constexpr int kMaxLabel = 18;   // maximum width of a row label, in columns
constexpr int kMaxHeader = 10;  // maximum width of a header above narrower numbers
constexpr int kMinLabel = 9;    // width that a caption in the corner may always use
constexpr int kGap = 2;
constexpr int kMaxPictureRows = 40;
const std::string kIndent = "   ";
const std::string kFocusIndent = " > ";

std::string spaces(int count) {
  return std::string(static_cast<std::size_t>(std::max(0, count)), ' ');
}

class TextRenderer {
 public:
  explicit TextRenderer(const TextOptions& options)
      : color_(options.color), width_(std::clamp(options.width, kMinWidth, kMaxWidth)) {}

  std::string render(const Story& story) {
    for (const std::string& line : wrap(story.title, width_)) add(bold(line, color_));
    for (const std::string& line : wrap(story.summary, width_)) add(line);
    for (const Note& note : story.notes) add_note("", "", note);
    for (std::size_t i = 0; i < story.sections.size(); ++i)
      render_section(story.sections[i], i + 1);
    return std::move(out_);
  }

  std::string render_blocks(const Section& section) {
    add_blocks(section);
    return std::move(out_);
  }

 private:
  void add(std::string line) {
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out_ += line + '\n';
  }

  void add_wrapped(const std::string& indent, const std::string& text) {
    for (const std::string& line : wrap(text, width_ - static_cast<int>(indent.size()))) {
      add(indent + line);
    }
  }

  void add_note(const std::string& indent, const std::string& title, const Note& note) {
    for (std::size_t i = 0; i < note.size(); ++i) {
      if (note[i].empty()) add("");
      add_wrapped(indent, i == 0 ? title + note[i] : note[i]);
    }
  }

  void render_section(const Section& section, std::size_t number) {
    add("");
    const std::string title = fmt::format("{}  {}", number, fit(section.title, width_ - 4));
    const int room = width_ - display_width(title) - display_width(section.formula);
    if (room >= 2) {
      add(bold(title, color_) + spaces(room) + faint(section.formula, color_));
    } else {
      add(bold(title, color_));
      add(kIndent + faint(fit(section.formula, width_ - 3), color_));
    }
    add_wrapped(kIndent, section.reading);
    add_blocks(section);
    for (const std::string& remark : section.remarks) add_wrapped(kIndent, remark);
    for (const Note& note : section.notes) add_note(kIndent, "Note: ", note);
  }

  void add_blocks(const Section& section) {
    for (std::size_t i = 0; i < section.blocks.size(); ++i) {
      if (i > 0) add("");
      if (const auto* table = std::get_if<Table>(&section.blocks[i])) {
        render_table(*table);
      } else {
        render_picture(std::get<Picture>(section.blocks[i]));
      }
    }
  }

  void add_caption(const std::string& caption) {
    for (const std::string& line : wrap(caption, width_ - static_cast<int>(kIndent.size()))) {
      add(kIndent + faint(line, color_));
    }
  }

  int max_label() const { return std::min(kMaxLabel, width_ / 4); }

  // ---- Tables ----------------------------------------------------------------------------------

  void render_table(const Table& table) {
    int label_width = 0;
    for (const TableRow& row : table.rows) {
      label_width = std::max(label_width, std::min(max_label(), display_width(row.label)));
    }
    // A short caption is placed in the corner of the table, a long one on a separate line.
    std::string corner = table.caption;
    if (display_width(corner) > std::max(label_width, kMinLabel)) {
      add_caption(corner);
      corner.clear();
    }
    label_width = std::max(label_width, display_width(corner));
    // If the table is too wide, headers are truncated.
    const int room = width_ - static_cast<int>(kIndent.size()) - label_width;
    std::vector<int> widths = column_widths(table, table.heat ? kMaxHeader : kMaxLabel);
    if (needed(table, widths) > room) widths = column_widths(table, kMaxHeader);
    std::vector<std::size_t> columns = fitting_columns(table, widths, label_width);
    if (taken(columns, widths) > room) {
      widths = column_widths(table, 0);
      columns = fitting_columns(table, widths, label_width);
    }
    int used = static_cast<int>(kIndent.size()) + label_width;
    for (const std::size_t j : columns) {
      // Columns that still do not fit are truncated.
      if (j != kLeftOut) widths[j] = std::max(1, std::min(widths[j], width_ - used - kGap));
      used += kGap + (j == kLeftOut ? 1 : widths[j]);
    }
    render_header(table, corner, columns, widths, label_width);
    for (const TableRow& row : table.rows) {
      if (only_in_omitted(row, columns)) continue;
      std::string line = row.focus ? bold(kFocusIndent, color_) : kIndent;
      line += pad_right(fit(row.label, label_width), label_width);
      for (const std::size_t j : columns) {
        line += j == kLeftOut ? spaces(kGap) + "…" : cell_text(table, row, j, widths[j]);
      }
      if (table.heat && color_ == Color::kNone) line += shades(row, width_ - used);
      const std::string remark = "      " + row.remark;
      if (used + display_width(remark) <= width_) line += remark;
      add(std::move(line));
    }
  }

  /// Returns the width of each column: the larger of its cell width and its header width. The
  /// header width is limited to `header_limit`.
  static std::vector<int> column_widths(const Table& table, int header_limit) {
    std::vector<int> widths;
    for (std::size_t j = 0; j < table.columns.size(); ++j) {
      int cells = 1;
      for (const TableRow& row : table.rows) {
        if (j < row.cells.size()) cells = std::max(cells, display_width(row.cells[j].text));
      }
      const int header = display_width(table.columns[j].header);
      widths.push_back(std::max(cells, std::min(header, header_limit)));
    }
    return widths;
  }

  /// Returns the width of the required columns, without row labels.
  static int needed(const Table& table, const std::vector<int>& widths) {
    int total = 0;
    for (std::size_t j = 0; j < widths.size(); ++j) {
      if (table.columns[j].rank == 0) total += kGap + widths[j];
    }
    return total;
  }

  static int taken(const std::vector<std::size_t>& columns, const std::vector<int>& widths) {
    int total = 0;
    for (const std::size_t j : columns) total += kGap + (j == kLeftOut ? 1 : widths[j]);
    return total;
  }

  /// Returns whether a row has text, but none in the columns shown.
  static bool only_in_omitted(const TableRow& row, const std::vector<std::size_t>& columns) {
    const auto has_text = [](const Cell& cell) { return !cell.text.empty(); };
    return std::ranges::any_of(row.cells, has_text) &&
           std::ranges::none_of(columns, [&](std::size_t j) {
             return j < row.cells.size() && has_text(row.cells[j]);
           });
  }

  static constexpr std::size_t kLeftOut = static_cast<std::size_t>(-1);

  /// Returns the columns that fit: the required columns and then the others, by rank. If even the
  /// required columns are too wide, returns the first columns that fit, kLeftOut, and the last
  /// column.
  std::vector<std::size_t> fitting_columns(const Table& table, const std::vector<int>& widths,
                                           int label_width) const {
    const int indent = static_cast<int>(kIndent.size()) + label_width;
    int total = indent + needed(table, widths);
    std::vector<std::size_t> columns(widths.size());
    std::iota(columns.begin(), columns.end(), std::size_t{0});
    std::ranges::stable_sort(columns, {}, [&](std::size_t j) { return table.columns[j].rank; });
    std::erase_if(columns, [&](std::size_t j) {
      if (table.columns[j].rank == 0) return false;
      if (total + kGap + widths[j] > width_) return true;
      total += kGap + widths[j];
      return false;
    });
    std::ranges::sort(columns);
    if (total <= width_ || columns.size() < 3) return columns;

    std::vector<std::size_t> some;
    int used = indent + kGap + 1 + kGap + widths[columns.back()];
    for (std::size_t i = 0; i + 1 < columns.size(); ++i) {
      used += kGap + widths[columns[i]];
      if (used > width_ && i > 0) break;
      some.push_back(columns[i]);
    }
    some.insert(some.end(), {kLeftOut, columns.back()});
    return some;
  }

  void render_header(const Table& table, const std::string& corner,
                     const std::vector<std::size_t>& columns, const std::vector<int>& widths,
                     int label_width) {
    const bool has_headers =
        std::any_of(table.columns.begin(), table.columns.end(),
                    [](const Column& column) { return !column.header.empty(); });
    if (!has_headers && corner.empty()) return;
    std::string line = kIndent + pad_right(corner, label_width);
    for (const std::size_t j : columns) {
      if (!has_headers) break;
      if (j == kLeftOut) {
        line += spaces(kGap) + "…";
        continue;
      }
      const std::string header = fit(table.columns[j].header, widths[j]);
      line += spaces(kGap) +
              (table.columns[j].left ? pad_right(header, widths[j]) : pad_left(header, widths[j]));
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    add(kIndent + faint(line.substr(std::min(kIndent.size(), line.size())), color_));
  }

  std::string cell_text(const Table& table, const TableRow& row, std::size_t j, int width) const {
    if (j >= row.cells.size()) return "";
    const Cell& cell = row.cells[j];
    const std::string text = table.columns[j].left ? pad_right(fit(cell.text, width), width)
                                                   : pad_left(fit(cell.text, width), width);
    if (color_ != Color::kNone && table.heat) {
      // The gap is part of the coloured cell, so that adjacent cells touch.
      return " " + on_heat(text + " ", cell.heat, color_);
    }
    return spaces(kGap) + text;
  }

  /// Returns the row as shades, to be printed after its numbers if there is room.
  static std::string shades(const TableRow& row, int room) {
    std::string text;
    for (const Cell& cell : row.cells) {
      text += cell.text == "…" ? "……" : shaded_cell(cell.heat);
    }
    const std::string framed = "   |" + text + "|";
    return display_width(framed) <= room ? framed : std::string();
  }

  // ---- Pictures --------------------------------------------------------------------------------

  void render_picture(const Picture& picture) {
    const int label_width = std::min(max_label(), longest(picture.labels));
    const int room = (width_ - static_cast<int>(kIndent.size()) - label_width - 4) / 2;
    const Tensor cells = pooled_mean(picture.weights, kMaxPictureRows, room);
    const std::int64_t rows = cells.extent(0);
    double hottest = 0.0;
    for (const double value : cells.span<double>()) {
      if (std::isfinite(value)) hottest = std::max(hottest, value);
    }
    const std::int64_t height = picture.weights.extent(0);
    std::string caption = picture.caption;
    if (rows < height || cells.extent(1) < picture.weights.extent(1)) {
      caption += fmt::format(
          ", {} x {}: a cell is the mean of about {:.0f} x {:.0f}", height,
          picture.weights.extent(1), static_cast<double>(height) / static_cast<double>(rows),
          static_cast<double>(picture.weights.extent(1)) / static_cast<double>(cells.extent(1)));
    }
    caption += fmt::format("; darkest: {:.2g}", hottest);
    add_caption(caption);
    for (std::int64_t i = 0; i < rows; ++i) {
      const auto first = static_cast<std::size_t>(i * height / rows);
      std::string line = kIndent + pad_right(fit(picture.labels[first], label_width), label_width);
      line += "  |";
      for (std::int64_t j = 0; j < cells.extent(1); ++j) {
        const double value = cells.at<double>({i, j});
        const double heat = std::isfinite(value) && hottest > 0 ? value / hottest : value;
        line += color_ == Color::kNone || !std::isfinite(value)
                    ? shaded_cell(heat)
                    : on_heat("  ", std::clamp(heat, 0.0, 1.0), color_);
      }
      add(line + "|");
    }
  }

  static int longest(const std::vector<std::string>& labels) {
    int width = 0;
    for (const std::string& label : labels) width = std::max(width, display_width(label));
    return width;
  }

  Color color_;
  int width_;
  std::string out_;
};

}  // namespace

std::string to_text(const Trace& trace, const TextOptions& options) {
  return TextRenderer(options).render(tell_story(trace));
}

std::string weights_to_text(const Trace& trace, const TextOptions& options) {
  Section section;
  StoryParts(trace).add_matrices(section, "weights", "Weights");
  return TextRenderer(options).render_blocks(section);
}

}  // namespace fovea::scene
