// SPDX-License-Identifier: Apache-2.0
//
// The table of completions, read from CLI11 (table.h).

#include "cli/completion/table.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "cli/shell/option_types.h"

namespace fovea::cli {
namespace {

std::string first_sentence(const std::string& text) {
  const std::size_t end = text.find(". ");
  if (end != std::string::npos) return text.substr(0, end);
  return text.ends_with('.') ? text.substr(0, text.size() - 1) : text;
}

std::vector<std::string> typed_names(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

// Returns whether the name of an argument or the type name of an option stands for a file.
bool is_file(std::string_view name) {
  constexpr std::array<std::string_view, 5> kFiles = {"FILE", "TENSOR", "SCENE", "DIR",
                                                      "RECORDING"};
  return std::any_of(kFiles.begin(), kFiles.end(),
                     [name](std::string_view file) { return name.starts_with(file); });
}

void add_option(Completion& to, CLI::Option& option) {
  std::optional<CompletionValue> value;
  const bool flag = option.get_items_expected_max() == 0;
  if (!flag) value = {choices_of(option), is_file(option.get_type_name())};
  to.options.push_back(
      {typed_names(option), first_sentence(option.get_description()), std::move(value)});
}

void add_argument(Completion& to, CLI::Option& option) {
  for (std::string& choice : choices_of(option)) to.argument.choices.push_back(std::move(choice));
  to.argument.file = to.argument.file || is_file(option.get_name(true));
}

void add_command(std::vector<Completion>& table, CLI::App& app, const std::string& command) {
  Completion entry = {command, app.get_description(), {}, {}, {}};
  for (CLI::Option* option : app.get_options([](CLI::Option*) { return true; })) {
    if (option->get_group().empty()) continue;  // hidden
    if (option->get_positional()) {
      add_argument(entry, *option);
    } else {
      add_option(entry, *option);
    }
  }
  const std::vector<CLI::App*> listed =
      app.get_subcommands([](CLI::App* sub) { return !sub->get_group().empty(); });
  for (const CLI::App* sub : listed) entry.subcommands.push_back(sub->get_name());
  table.push_back(std::move(entry));
  for (CLI::App* sub : listed) {
    add_command(table, *sub, command.empty() ? sub->get_name() : command + " " + sub->get_name());
  }
}

}  // namespace

std::vector<Completion> completion_table(CLI::App& program) {
  std::vector<Completion> table;
  add_command(table, program, "");
  return table;
}

}  // namespace fovea::cli
