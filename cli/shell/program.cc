// SPDX-License-Identifier: Apache-2.0
//
// Program entry and error handling (program.h).

#include "cli/shell/program.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "fovea/error.h"
#include "fovea/info.h"

#include "cli/shell/exit_code.h"
#include "cli/shell/help.h"
#include "cli/shell/interrupt.h"
#include "cli/shell/man.h"
#include "cli/shell/message.h"
#include "cli/shell/output.h"
#include "text/nearest.h"

namespace fovea::cli {
namespace {

constexpr const char* kManFlag = "--man";

// Returns the chosen command as typed: "fovea", "fovea explain" or "fovea train scene".
std::string command_name(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app.get_name() : app.get_name() + " " + command_name(*chosen.front());
}

// Returns the options of `app` as typed, without hidden ones.
std::vector<std::string> known_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> known_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : listed_commands(app)) {
    names.push_back(command->get_name());
  }
  return names;
}

// Returns the message for an argument of `app` that is neither an option nor a command.
std::string complaint(const CLI::App& app, const std::string& argument) {
  if (argument.starts_with("-")) {
    const std::string name = argument.substr(0, argument.find('='));
    return fmt::format("unknown option \"{}\"{}", name, did_you_mean(name, known_options(app)));
  }
  const std::vector<std::string> commands = known_commands(app);
  if (commands.empty()) return fmt::format("unexpected argument \"{}\"", argument);
  return fmt::format("unknown command \"{}\"{}", argument, did_you_mean(argument, commands));
}

// Throws UsageError for the first argument that was not parsed.
void refuse_extras(const CLI::App& app) {
  for (const std::string& argument : app.remaining()) {
    if (argument == "--") continue;
    throw UsageError(complaint(app, argument));
  }
  for (const CLI::App* command : app.get_subcommands()) refuse_extras(*command);
}

// Throws UsageError for a value of a flag, which CLI11 would convert to a number, and for an empty
// value of an option that needs none, which CLI11 does not distinguish from none.
void refuse_values(const CLI::App& app, int argc, const char* const* argv) {
  for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    const std::string argument = argv[i];
    const std::size_t mark = std::min(argument.find('='), argument.size());
    const std::string name = argument.substr(0, mark);
    const CLI::Option* option = nullptr;
    for (const CLI::App* at = &app; at != nullptr && option == nullptr;) {
      if (name.starts_with("--")) option = at->get_option_no_throw(name);
      at = at->get_subcommands().empty() ? nullptr : at->get_subcommands().front();
    }
    if (option == nullptr) continue;
    if (option->get_expected_min() > 0) {
      if (mark == argument.size()) i += option->get_expected_min();  // its values
      continue;
    }
    if (option->get_expected_max() == 0 && mark < argument.size()) {
      throw UsageError(
          fmt::format("{}: expected no value, got \"{}\"", name, argument.substr(mark + 1)));
    }
    const bool is_next_empty = i + 1 < argc && argv[i + 1][0] == '\0';
    if (option->get_expected_max() > 0 &&
        (mark + 1 == argument.size() || (mark == argument.size() && is_next_empty))) {
      throw UsageError(fmt::format("{}: expected a value or nothing, got \"\"", name));
    }
  }
}

// Rewords an error of CLI11.
std::string reworded(const CLI::ParseError& error) {
  const std::string message = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    return fmt::format("{}: expected a value", message.substr(0, message.find(':')));
  }
  // CLI11 sees options with values as strings, so only a flag (--check=maybe) can fail to convert.
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    const std::string what = message.substr(message.find(": ") + 2);
    return fmt::format("{}: expected no value", what.substr(0, what.find(' ')));
  }
  return message;
}

int refuse(std::string_view problem, const CLI::App& app) {
  print_usage_error(fmt::format("{}; see {} --help", problem, command_name(app)));
  return kBadInput;
}

// Adds the flags that print the pages of `app` and its commands, unless --help was removed. They
// are added last because the page lists options in the order of addition.
void add_help_flags(CLI::App& app) {
  if (app.get_help_ptr() != nullptr) {
    app.option_defaults()->group("Options");
    app.set_help_flag("-h,--help", "Print this page and exit.");
    app.add_flag(kManFlag)->group("");  // hidden
  }
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    add_help_flags(*command);
  }
}

// Returns the command with the flag --man, or null.
const CLI::App* with_man_flag(const CLI::App& app) {
  for (const CLI::App* command : app.get_subcommands()) {
    if (const CLI::App* found = with_man_flag(*command)) return found;
  }
  const CLI::Option* flag = app.get_option_no_throw(kManFlag);
  return flag != nullptr && flag->count() > 0 ? &app : nullptr;
}

// "fovea 0.1.0 (AVX2, GCC 12.2.0, Release)"
std::string version_line(const CLI::App& app) {
  const BuildInfo info = build_info();
  return fmt::format("{} {} ({}, {}, {})", app.get_name(), info.version, info.target, info.compiler,
                     info.build_type);
}

int parse_and_run(int argc, const char* const* argv, CLI::App& app, MakeCommand make) {
  // Unknown arguments are collected and rejected here, since CLI11 makes no suggestion.
  app.allow_extras();
  const std::unique_ptr<Command> command = make(app);
  app.set_version_flag(
      "--version", [&app] { return version_line(app); },
      "Print the version, SIMD target and build, and exit.");
  add_help_flags(app);
  try {
    app.parse(argc, argv);
    refuse_extras(app);
    refuse_values(app, argc, argv);
    if (const CLI::App* asked = with_man_flag(app)) {
      write_stdout(man_page(*asked));
      return 0;
    }
    return command->run();
  } catch (const CLI::CallForHelp&) {
    write_stdout(app.help());
    return 0;
  } catch (const CLI::CallForVersion& version) {
    write_stdout(fmt::format("{}\n", version.what()));
    return 0;
  } catch (const CLI::ParseError& error) {
    return refuse(reworded(error), app);
  } catch (const UsageError& error) {
    return refuse(error.what(), app);
  }
}

}  // namespace

int run_program(int argc, const char* const* argv, const char* name, const char* description,
                MakeCommand make) noexcept {
  handle_signals();
  name_program(name);
  try {
    CLI::App app(description, name);
    return parse_and_run(argc, argv, app, make);
  } catch (const InvalidArgument& error) {
    print_error(error.what());
    return kBadInput;
  } catch (const OutputError& error) {
    print_error(error.what());
    return kFailed;
  } catch (const IoError& error) {  // from reading; OutputError, above, is from writing
    print_error(error.what());
    return kBadInput;
  } catch (const std::bad_alloc&) {
    print_error("out of memory");
    return kFailed;
  } catch (const std::exception& error) {
    print_error(error.what());
    return kFailed;
  }
}

}  // namespace fovea::cli
