// SPDX-License-Identifier: Apache-2.0
//
// Help in the form of a manual page. What a command, an option or a subcommand is for is written
// once, where it is added to CLI11; this lays it out and puts the page's own sections around it.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

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

/// NAME, SYNOPSIS, DESCRIPTION, COMMANDS, ARGUMENTS, OPTIONS, then the page's sections, within 80
/// columns.
class PageFormatter : public CLI::FormatterBase {
 public:
  explicit PageFormatter(Page page) : page_(std::move(page)) {}

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;

 private:
  Page page_;
};

/// "EXIT STATUS", alike on every page.
Page::Section exit_status_section();

/// The page in a few lines, for somebody who typed the program's name alone.
std::string short_help(const CLI::App& app);

}  // namespace fovea::cli
