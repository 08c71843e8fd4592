// SPDX-License-Identifier: Apache-2.0
//
// Parsing of manual pages (page.h).

#include "cli/shell/page.h"

#include <algorithm>

namespace fovea::cli {

extern const std::string_view kExitStatus;  // pages/exit_status.txt

Page parse_page(std::string_view text) {
  constexpr std::string_view kMark = "== ";
  Page page;
  while (text.starts_with(kMark)) {
    text.remove_prefix(kMark.size());
    const std::size_t next = std::min(text.find("\n== "), text.size());
    std::string_view section = text.substr(0, next);
    text.remove_prefix(std::min(next + 1, text.size()));
    const std::size_t line = section.find('\n');
    const std::string_view heading = section.substr(0, line);
    section.remove_prefix(std::min(line, section.size()));
    while (section.starts_with('\n')) section.remove_prefix(1);
    while (section.ends_with('\n')) section.remove_suffix(1);
    const bool shared = heading == "EXIT STATUS" && section.empty();
    page.sections.push_back({heading, shared ? kExitStatus : section});
  }
  return page;
}

}  // namespace fovea::cli
