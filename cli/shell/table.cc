// SPDX-License-Identifier: Apache-2.0
//
// Text tables (table.h).

#include "cli/shell/table.h"

#include <algorithm>
#include <cstddef>

#include "text/text_width.h"

namespace fovea::cli {

std::string text_table(const std::vector<Cells>& rows, std::string_view sides) {
  const auto is_left = [&](std::size_t i) { return sides[std::min(i, sides.size() - 1)] == '<'; };
  std::vector<int> widths;
  for (const Cells& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], display_width(row[i]));
    }
  }
  std::string text;
  for (const Cells& row : rows) {
    std::size_t end = row.size();
    while (end > 0 && row[end - 1].empty()) --end;
    std::string line;
    for (std::size_t i = 0; i < end; ++i) {
      if (i > 0) line += "  ";
      if (!is_left(i)) {
        line += pad_left(row[i], widths[i]);
      } else {
        line += i + 1 < end ? pad_right(row[i], widths[i]) : row[i];
      }
    }
    if (end > 0 && !is_left(end - 1)) line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace fovea::cli
