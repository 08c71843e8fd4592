// SPDX-License-Identifier: Apache-2.0
//
// Completion scripts for three shells. Each script finds the command in the words typed so far. If
// the option before the cursor takes a value, it offers values, otherwise subcommands, options or
// files.

#pragma once

#include <string>
#include <vector>

#include "cli/completion/table.h"

namespace fovea::cli {

/// Returns the script for bash 4 or newer.
std::string bash_script(const std::vector<Completion>& table);
/// Returns the script for zsh's completion system (compinit), to be sourced or installed as the
/// file _fovea in a folder in fpath.
std::string zsh_script(const std::vector<Completion>& table);
/// Returns the script for fish 3 or newer.
std::string fish_script(const std::vector<Completion>& table);

}  // namespace fovea::cli
