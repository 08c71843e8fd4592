// SPDX-License-Identifier: Apache-2.0
//
// The `fovea` program: reads the command line, runs one command, and turns whatever goes wrong
// into one line on standard error and an exit code (0 done, 1 failed, 2 wrong usage or bad input).

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "fovea/error.h"
#include "fovea/info.h"

#include "bench/attention/command.h"
#include "cli/attend/command.h"
#include "cli/explain/command.h"
#include "cli/heads/command.h"
#include "cli/info/command.h"
#include "cli/inspect/command.h"
#include "cli/map/command.h"
#include "cli/map/tile_command.h"
#include "cli/shell/help.h"
#include "cli/shell/interrupt.h"
#include "cli/shell/message.h"
#include "cli/shell/output.h"
#include "cli/train/command.h"
#include "cli/train/translate.h"
#include "text/nearest.h"

namespace fovea::cli {
namespace {

constexpr int kFailed = 1;
constexpr int kBadInput = 2;

Page root_page() {
  return {
      .synopsis = {"fovea COMMAND [ARGUMENT]...", "fovea COMMAND --help"},
      .description =
          "Attention is how a language model lets each word look at the others. Fovea computes "
          "it exactly, on CPUs, and so that one can look inside.",
      .sections = {exit_status_section(),
                   {"EXAMPLES",
                    " fovea explain --text \"Your journey starts with one step\"\n"
                    " fovea explain lesson.json --output lesson.html\n"
                    " fovea inspect model.safetensors\n"
                    " fovea attend --input layer.npz --causal --output context.npy\n"
                    " fovea map --input layer.npz --causal --output map.html\n"
                    " fovea heads --input layer.npz --causal\n"
                    " fovea train scene lesson.json --output learned.json\n"
                    " fovea translate dates \"en-US: 03/04/05\" --show-attention\n"
                    " fovea bench\n"
                    " fovea info"},
                   {"ENVIRONMENT",
                    "COLUMNS, NO_COLOR, TERM and COLORTERM shape text; fovea explain --help "
                    "says how. FOVEA_TARGET and OpenMP's variables say what to compute with; "
                    "fovea info --help says how."},
                   {"SEE ALSO",
                    "fovea explain --help, fovea inspect --help, fovea attend --help, fovea map "
                    "--help, fovea tile --help, fovea heads --help, fovea train --help, fovea "
                    "translate --help, fovea bench --help, fovea info --help"}}};
}

// "fovea", or "fovea explain" or "fovea train scene" when that is the command.
std::string command_name(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app.get_name() : app.get_name() + " " + command_name(*chosen.front());
}

// The options and commands that `app` knows, as they are typed.
std::vector<std::string> known_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> known_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

// What is wrong with an argument of `app` that no option and no command took.
std::string complaint(const CLI::App& app, const std::string& argument) {
  if (argument.starts_with("-")) {
    const std::string name = argument.substr(0, argument.find('='));
    return fmt::format("unknown option \"{}\"{}", name, did_you_mean(name, known_options(app)));
  }
  const std::vector<std::string> commands = known_commands(app);
  if (commands.empty()) return fmt::format("unexpected argument \"{}\"", argument);
  return fmt::format("unknown command \"{}\"{}", argument, did_you_mean(argument, commands));
}

// Refuses the first argument that is left over.
void refuse_extras(const CLI::App& app) {
  for (const std::string& argument : app.remaining()) {
    if (argument == "--") continue;
    throw UsageError(complaint(app, argument));
  }
  for (const CLI::App* command : app.get_subcommands()) refuse_extras(*command);
}

// CLI11's complaint in our words.
std::string reworded(const CLI::ParseError& error) {
  const std::string message = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    return fmt::format("{}: expected a value", message.substr(0, message.find(':')));
  }
  // Options with values are strings to CLI11, so only a flag (--check=maybe) fails to convert.
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    return fmt::format("expected true, false or no value: {}",
                       message.substr(message.find(": ") + 2));
  }
  return message;
}

int refuse(std::string_view problem, const CLI::App& app) {
  print_error(fmt::format("{}; see {} --help", problem, command_name(app)));
  return kBadInput;
}

int run_command(int argc, const char* const* argv) {
  CLI::App app("exact attention on CPUs that one can look inside", "fovea");
  app.formatter(std::make_shared<PageFormatter>(root_page()));
  // Collected rather than refused by CLI11, which would not say what was meant.
  app.allow_extras();
  app.require_subcommand(0, 1);
  const ExplainCommand explain(app);
  const InspectCommand inspect(app);
  const AttendCommand attend(app);
  const MapCommand map(app);
  const TileCommand tile(app);
  const HeadsCommand heads(app);
  const TrainCommand train(app);
  const TranslateCommand translate(app);
  const BenchCommand bench(app);
  const InfoCommand info(app);
  app.set_version_flag(
      "--version", [] { return "fovea " + build_info().version; }, "Print the version and exit.");
  app.set_help_flag("-h,--help", "Print this page and exit.");
  try {
    app.parse(argc, argv);
    refuse_extras(app);
    if (explain.chosen()) return explain.run();
    if (inspect.chosen()) return inspect.run();
    if (attend.chosen()) return attend.run();
    if (map.chosen()) return map.run();
    if (tile.chosen()) return tile.run();
    if (heads.chosen()) return heads.run();
    if (train.chosen()) return train.run();
    if (translate.chosen()) return translate.run();
    if (bench.chosen()) return bench.run();
    if (info.chosen()) return info.run();
    write_stderr(short_help(app));
    return kBadInput;
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

int run(int argc, const char* const* argv) noexcept {
  try {
    return run_command(argc, argv);
  } catch (const InvalidArgument& error) {
    print_error(error.what());
    return kBadInput;
  } catch (const OutputError& error) {
    print_error(error.what());
    return kFailed;
  } catch (const IoError& error) {  // what is read
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

}  // namespace
}  // namespace fovea::cli

int main(int argc, char** argv) {
  fovea::cli::handle_signals();
  return fovea::cli::run(argc, argv);
}
