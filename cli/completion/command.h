// SPDX-License-Identifier: Apache-2.0
//
// `fovea completion`: print a script that completes commands and options in a shell.

#pragma once

#include <memory>

#include "cli/shell/command.h"

namespace fovea::cli {

std::unique_ptr<Command> make_completion(CLI::App& parent);

}  // namespace fovea::cli
