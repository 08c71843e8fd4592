// SPDX-License-Identifier: Apache-2.0
//
// Base classes of commands. Each command is a class in the .cc of its folder, whose header declares
// a factory only.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace fovea::cli {

/// What happens to an option that is given twice.
enum class Repeated : std::uint8_t { kLastCounts, kRefused };

class Command {
 public:
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  virtual ~Command() = default;

  bool chosen() const { return app_->parsed(); }
  /// Does the work; returns the exit code. Throws UsageError, InvalidArgument, IoError, OutputError
  /// and whatever else ends the program with a message (program.h).
  virtual int run() const = 0;

 protected:
  /// A command of `parent`, with the text of its page (page.h). The help flag is added later, after
  /// all other options.
  Command(CLI::App& parent, const char* name, const char* description, std::string_view page,
          Repeated repeated = Repeated::kLastCounts);
  /// A program, without a name to be typed.
  Command(CLI::App& program, std::string_view page, Repeated repeated = Repeated::kLastCounts);

  bool given(const std::string& option) const { return app_->count(option) > 0; }

  CLI::App* app_;
};

/// Adds a command to its parent.
using MakeCommand = std::unique_ptr<Command> (*)(CLI::App& parent);

/// A command or a program that has commands.
class CommandGroup : public Command {
 public:
  /// Runs the command that was chosen.
  int run() const override;

 protected:
  using Command::Command;

  void add_commands(std::initializer_list<MakeCommand> commands);
  /// Called if no command was chosen.
  virtual int run_alone() const = 0;

 private:
  std::vector<std::unique_ptr<Command>> commands_;
};

/// A command that this program does not have: whatever follows its name, it throws InvalidArgument
/// with `message`. Without a description it is not listed.
std::unique_ptr<Command> make_absent(CLI::App& parent, const std::string& name,
                                     const std::string& description, const std::string& message);

}  // namespace fovea::cli
