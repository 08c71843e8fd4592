// SPDX-License-Identifier: Apache-2.0
//
// Renders the story as GitHub-flavoured Markdown (for its tables). Text from the scene is escaped:
// it is displayed, never interpreted.

#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "fovea/scene.h"

#include "scene/tell/palette.h"
#include "scene/tell/story.h"
#include "scene/trace/pooled.h"

namespace fovea::scene {
namespace {

constexpr std::int64_t kPictureCells = 48;

/// Escapes every character that Markdown or HTML could read as markup.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      default:
        if (std::string_view("\\`*_{}[]()#+-.!|~:@$").find(c) != std::string_view::npos) {
          result += '\\';
        }
        result += c;
    }
  }
  return result;
}

/// Formats numbers and products as code, so that their columns align. Leading spaces of a
/// left-aligned column become no-break spaces, because others collapse. `text` must not contain a
/// pipe, which would end the table cell.
std::string code(const std::string& text, bool left = false) {
  const auto first = text.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  std::string body;
  for (std::size_t i = 0; left && i < first; ++i) body += "\u00A0";
  body += text.substr(first, text.find_last_not_of(' ') - first + 1);
  return '`' + body + '`';
}

void append_table(std::string& out, const Table& table) {
  if (!table.caption.empty()) out += fmt::format("**{}**\n\n", escaped(table.caption));
  out += "| |";
  for (const Column& column : table.columns) out += ' ' + escaped(column.header) + " |";
  out += "\n|:--|";
  for (const Column& column : table.columns) out += column.left ? ":--|" : "--:|";
  out += '\n';
  for (const TableRow& row : table.rows) {
    const std::string label = escaped(row.label);
    out += row.focus && !label.empty() ? fmt::format("| **{}** |", label)
                                       : fmt::format("| {} |", label);
    for (std::size_t j = 0; j < table.columns.size(); ++j) {
      const std::string cell = j < row.cells.size() ? row.cells[j].text : std::string();
      out += ' ' + code(cell, table.columns[j].left) + " |";
    }
    out += '\n';
  }
  out += '\n';
}

/// Appends the lines of a note, with line breaks. Empty lines separate paragraphs.
void append_note(std::string& out, std::string_view prefix, const Note& note) {
  for (std::size_t i = 0; i < note.size(); ++i) {
    if (i > 0) out += prefix;
    out += escaped(note[i]);
    const bool breaks = !note[i].empty() && i + 1 < note.size() && !note[i + 1].empty();
    out += breaks ? "\\\n" : "\n";
  }
  out += '\n';
}

void append_picture(std::string& out, const Picture& picture) {
  const Tensor cells = pooled_mean(picture.weights, kPictureCells, kPictureCells);
  double hottest = 0.0;
  for (const double value : cells.span<double>()) {
    if (std::isfinite(value)) hottest = std::max(hottest, value);
  }
  out += fmt::format("**{}** ({} x {}, as {} x {} cells, each a mean)\n\n```text\n",
                     escaped(picture.caption), picture.weights.extent(0), picture.weights.extent(1),
                     cells.extent(0), cells.extent(1));
  for (std::int64_t i = 0; i < cells.extent(0); ++i) {
    for (std::int64_t j = 0; j < cells.extent(1); ++j) {
      const double value = cells.at<double>({i, j});
      out += shaded_cell(std::isfinite(value) && hottest > 0 ? value / hottest : value);
    }
    out += '\n';
  }
  out += "```\n\n";
}

}  // namespace

std::string to_markdown(const Trace& trace) {
  const Story story = tell_story(trace);
  std::string out = fmt::format("# {}\n\n{}\n\n", escaped(story.title), escaped(story.summary));
  for (const Note& note : story.notes) append_note(out, "", note);
  for (std::size_t i = 0; i < story.sections.size(); ++i) {
    const Section& section = story.sections[i];
    out += fmt::format("## {}. {}\n\n", i + 1, escaped(section.title));
    if (!section.formula.empty()) out += code(section.formula) + "\n\n";
    if (!section.reading.empty()) out += escaped(section.reading) + "\n\n";
    for (const auto& block : section.blocks) {
      if (const auto* table = std::get_if<Table>(&block)) {
        append_table(out, *table);
      } else {
        append_picture(out, std::get<Picture>(block));
      }
    }
    for (const std::string& remark : section.remarks) out += "- " + escaped(remark) + '\n';
    if (!section.remarks.empty()) out += '\n';
    for (const Note& note : section.notes) {
      out += "> Note: ";
      append_note(out, "> ", note);
    }
  }
  return out;
}

}  // namespace fovea::scene
