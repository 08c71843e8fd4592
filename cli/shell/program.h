// SPDX-License-Identifier: Apache-2.0
//
// Runs a program: reads its command line, runs what was chosen, and turns an exception into one
// line on standard error and an exit code (exit_code.h).

#pragma once

#include "cli/shell/command.h"

namespace fovea::cli {

/// Handles signals, adds --help and --version, and runs the command that `make` returns. Returns
/// the exit code.
int run_program(int argc, const char* const* argv, const char* name, const char* description,
                MakeCommand make) noexcept;

}  // namespace fovea::cli
