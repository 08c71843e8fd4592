// SPDX-License-Identifier: Apache-2.0
//
// What the command line says on standard error: one line per failure, with nothing in it that a
// terminal would obey. Words of a scene, file names and arguments may hold anything.

#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace fovea::cli {

/// The command line was used wrongly. The message says how; where help is, program.h adds.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The name that messages begin with; it must live as long as the program. Without this: "fovea".
void name_program(const char* name) noexcept;

/// Prints "NAME: MESSAGE" as one line on standard error, with control characters spelled out.
/// When even that fails there is nobody left to tell.
void print_error(std::string_view message) noexcept;

/// The same from a signal handler, with text that needs nothing spelled out.
void print_error_in_handler(std::string_view message) noexcept;

/// Prints `text` as it is on standard error.
void write_stderr(std::string_view text) noexcept;

}  // namespace fovea::cli
