// SPDX-License-Identifier: Apache-2.0
//
// Help in the form of a manual page: the descriptions of commands and options in CLI11, with the
// page's own sections (page.h) around them.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/shell/page.h"
#include "cli/shell/page_writer.h"

namespace fovea::cli {

/// A manual page of 80 columns: NAME, EXAMPLE, SYNOPSIS, DESCRIPTION, COMMANDS, ARGUMENTS, OPTIONS,
/// then the page's other sections.
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

/// Returns ASCII text in upper case.
std::string upper(std::string text);

/// Returns the commands of `app` that are not hidden.
std::vector<const CLI::App*> listed_commands(const CLI::App& app);

/// Returns a summary of the page, for a program that was started without arguments.
std::string short_help(const CLI::App& app);

}  // namespace fovea::cli
