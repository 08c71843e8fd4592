// SPDX-License-Identifier: Apache-2.0
//
// Runs a program: parses its command line, runs the chosen command, and turns an exception into one
// line on standard error and an exit code (exit_code.h).

#pragma once

#include "cli/shell/command.h"

namespace fovea::cli {

/// Installs the signal handlers, adds --help and --version, runs the command that `make` creates,
/// and returns the exit code.
int run_program(int argc, const char* const* argv, const char* name, const char* description,
                MakeCommand make) noexcept;

}  // namespace fovea::cli
