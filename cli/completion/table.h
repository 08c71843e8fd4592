// SPDX-License-Identifier: Apache-2.0
//
// Everything that a shell can complete, read from the options that the commands added to CLI11.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace fovea::cli {

/// What can be offered for a value: one of a few words, a file name, or nothing, as for a number.
struct CompletionValue {
  std::vector<std::string> choices;
  bool file = false;
};

struct CompletionOption {
  /// As typed: "-h", "--help".
  std::vector<std::string> names;
  /// The first sentence of its help.
  std::string description;
  /// Absent for a flag.
  std::optional<CompletionValue> value;
};

/// One command.
struct Completion {
  /// The words that select it, as in "train scene"; empty for the program itself.
  std::string command;
  std::string description;
  std::vector<std::string> subcommands;
  std::vector<CompletionOption> options;
  /// All positional arguments together.
  CompletionValue argument;
};

/// Returns one entry per command of `program`, the program itself first. Hidden commands are left
/// out.
std::vector<Completion> completion_table(CLI::App& program);

}  // namespace fovea::cli
