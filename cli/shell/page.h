// SPDX-License-Identifier: Apache-2.0
//
// The text of a manual page (help.h puts it around what CLI11 knows of a command).

#pragma once

#include <string_view>
#include <vector>

namespace fovea::cli {

/// A page as its sections, of which SYNOPSIS and DESCRIPTION come first.
///
/// In a section, lines that follow each other make a paragraph, and a blank line ends it. A line
/// that starts with a space stays as it is, less that space. "TERM:: TEXT" becomes two columns; the
/// text goes on in the indented lines below.
struct Page {
  struct Section {
    std::string_view heading;
    std::string_view text;
  };
  std::vector<Section> sections;
};

/// Reads a page from a text in which "== HEADING" begins a section. The page refers to the text. An
/// empty section EXIT STATUS stands for what all pages have there.
Page parse_page(std::string_view text);

}  // namespace fovea::cli
