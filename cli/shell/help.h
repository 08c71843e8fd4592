// SPDX-License-Identifier: Apache-2.0
//
// Help in the form of a manual page. What a command, an option or a subcommand is for is written
// once, where it is added to CLI11; this lays it out and puts the page's own sections around it.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/shell/page.h"
#include "cli/shell/page_writer.h"

namespace fovea::cli {

/// NAME, SYNOPSIS, DESCRIPTION, COMMANDS, ARGUMENTS, OPTIONS, then the page's other sections,
/// within 80 columns.
class PageFormatter : public CLI::FormatterBase {
 public:
  explicit PageFormatter(Page page) : page_(std::move(page)) {}

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;

  const Page& page() const { return page_; }

 private:
  Page page_;
};

/// Writes the page of `app`, whose formatter is a PageFormatter.
void write_page(PageWriter& writer, const CLI::App& app);

/// Returns ASCII text in capitals.
std::string upper(std::string text);

/// The commands of `app` that a page lists.
std::vector<const CLI::App*> listed_commands(const CLI::App& app);

/// The page in a few lines, for somebody who typed the program's name alone.
std::string short_help(const CLI::App& app);

}  // namespace fovea::cli
