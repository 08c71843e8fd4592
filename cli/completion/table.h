// SPDX-License-Identifier: Apache-2.0
//
// The table of commands, options and values that a shell can complete, read from CLI11.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace fovea::cli {

/// The candidates for a value: a few words, file names, or none, for example for a number.
struct CompletionValue {
  std::vector<std::string> choices;
  bool file = false;
};

struct CompletionOption {
  /// Names as typed: "-h", "--help".
  std::vector<std::string> names;
  /// The first sentence of the help text.
  std::string description;
  /// Absent for a flag.
  std::optional<CompletionValue> value;
};

/// The completions of one command.
struct Completion {
  /// The words that select the command, such as "train scene"; empty for the program itself.
  std::string command;
  std::string description;
  std::vector<std::string> subcommands;
  std::vector<CompletionOption> options;
  /// The candidates for any positional argument.
  CompletionValue argument;
};

/// Returns one entry per command of `program`, the program itself first. Hidden commands are left
/// out.
std::vector<Completion> completion_table(CLI::App& program);

}  // namespace fovea::cli
