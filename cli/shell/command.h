// SPDX-License-Identifier: Apache-2.0
//
// Base classes of commands. Each command is a class in a .cc file of its folder; the header
// declares only a factory.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace fovea::cli {

/// The handling of an option that occurs twice.
enum class Repeated : std::uint8_t { kLastCounts, kRefused };

class Command {
 public:
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  virtual ~Command() = default;

  bool chosen() const { return app_->parsed(); }
  /// Returns whether several processes can run the command together (job.h).
  virtual bool runs_in_jobs() const { return false; }
  /// Runs the command and returns the exit code. May throw UsageError, InvalidArgument, IoError,
  /// OutputError and other exceptions; run_program (program.h) turns them into messages.
  virtual int run() const = 0;
  /// Sets the subheading under which a page lists the command.
  void set_group(const char* heading) { app_->group(heading); }

 protected:
  /// Creates a command of `parent` with the text of its page (page.h). The help flag is added
  /// later, after all other options.
  Command(CLI::App& parent, const char* name, const char* description, std::string_view page,
          Repeated repeated = Repeated::kLastCounts);
  /// Creates the command of a program that has no subcommand name.
  Command(CLI::App& program, std::string_view page, Repeated repeated = Repeated::kLastCounts);

  bool given(const std::string& option) const { return app_->count(option) > 0; }

  CLI::App* app_;
};

/// A function that adds a command to its parent.
using MakeCommand = std::unique_ptr<Command> (*)(CLI::App& parent);

/// A command or program with subcommands.
class CommandGroup : public Command {
 public:
  /// Runs the chosen subcommand.
  int run() const override;

 protected:
  using Command::Command;

  /// Adds subcommands. `group` is their subheading on the page; null if there is none.
  void add_commands(std::initializer_list<MakeCommand> commands, const char* group = nullptr);
  /// Called if no subcommand was chosen.
  virtual int run_alone() const = 0;

 private:
  std::vector<std::unique_ptr<Command>> commands_;
};

/// Creates a placeholder for a command that this program does not have. The placeholder throws
/// InvalidArgument with `message` for any arguments, and is hidden if `description` is empty.
std::unique_ptr<Command> make_absent(CLI::App& parent, const std::string& name,
                                     const std::string& description, const std::string& message);

}  // namespace fovea::cli
