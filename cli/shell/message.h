// SPDX-License-Identifier: Apache-2.0
//
// Messages on standard error: one line per failure, without control characters, since words of a
// scene, file names and arguments may contain any bytes.

#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace fovea::cli {

/// Wrong usage of the command line. run_program (program.h) adds a reference to the help page.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Sets the prefix of messages, "fovea" by default. `name` must outlive all messages.
void name_program(const char* name) noexcept;

/// Prints "NAME: MESSAGE" as one line on standard error, with control characters escaped. Ignores
/// write errors.
void print_error(std::string_view message) noexcept;

/// As print_error(), for wrong usage.
void print_usage_error(std::string_view message) noexcept;
/// Returns whether print_usage_error() was called.
bool usage_was_wrong() noexcept;

/// Makes this process print neither messages nor output from now on (job.h).
void silence() noexcept;
bool is_silent() noexcept;
/// Returns the last message that print_error() did not print.
const std::string& last_error() noexcept;

/// Prints the same from a signal handler, without escaping.
void print_error_in_handler(std::string_view message) noexcept;

/// Prints `text` unchanged on standard error. Ignores write errors.
void write_stderr(std::string_view text) noexcept;

}  // namespace fovea::cli
