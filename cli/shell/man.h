// SPDX-License-Identifier: Apache-2.0
//
// Manual pages for man(1), from the same text as --help.

#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace fovea::cli {

/// Returns the page of `app`, one of the program's commands or the program itself, in roff. Its
/// date is that of SOURCE_DATE_EPOCH if set, else today's.
std::string man_page(const CLI::App& app);

}  // namespace fovea::cli
