// SPDX-License-Identifier: Apache-2.0
//
// The text of a manual page (help.h puts it around what CLI11 knows of a command).

#pragma once

#include <string>
#include <vector>

namespace fovea::cli {

/// What a page says beyond what CLI11 knows.
///
/// Texts are broken to fit: lines that follow each other make a paragraph; a blank line ends it; a
/// line that starts with a space stays as it is; "TERM\tTEXT" becomes two columns.
struct Page {
  struct Section {
    std::string heading;
    std::string text;
  };
  /// Lines as they are to stand.
  std::vector<std::string> synopsis;
  std::string description;
  std::vector<Section> sections;
};

/// "EXIT STATUS", alike on every page.
Page::Section exit_status_section();

}  // namespace fovea::cli
