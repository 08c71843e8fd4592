// SPDX-License-Identifier: Apache-2.0
//
// The text of a manual page, to which help.h adds the commands and options known to CLI11.

#pragma once

#include <string_view>
#include <vector>

namespace fovea::cli {

/// The sections of a page, beginning with EXAMPLE, SYNOPSIS and DESCRIPTION.
///
/// Consecutive lines form a paragraph, which ends at a blank line. A line that starts with a space
/// is printed verbatim without that space. "TERM:: TEXT" becomes two columns; indented lines below
/// continue the text.
struct Page {
  struct Section {
    std::string_view heading;
    std::string_view text;
  };
  std::vector<Section> sections;
};

/// Parses a page in which "== HEADING" begins a section. The result refers to `text`. An empty
/// section EXIT STATUS is replaced by the text that all pages share.
Page parse_page(std::string_view text);

}  // namespace fovea::cli
