// SPDX-License-Identifier: Apache-2.0
//
// The completion scripts of three shells. Each finds the command in the words typed so far, offers
// the values of the option before the cursor if that option takes one, and otherwise subcommands,
// options or files.

#pragma once

#include <string>
#include <vector>

#include "cli/completion/table.h"

namespace fovea::cli {

/// For bash 4 or newer.
std::string bash_script(const std::vector<Completion>& table);
/// For zsh's completion system (compinit), sourced or as the file _fovea of a folder in fpath.
std::string zsh_script(const std::vector<Completion>& table);
/// For fish 3 or newer.
std::string fish_script(const std::vector<Completion>& table);

}  // namespace fovea::cli
