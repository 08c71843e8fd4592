// SPDX-License-Identifier: Apache-2.0
//
// Manual pages (help.h).

#include "cli/shell/help.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/format.h>

#include "text/text_width.h"

namespace fovea::cli {
namespace {

constexpr int kPageWidth = 80;
constexpr int kIndent = 4;
constexpr int kGap = 2;
// A term wider than this stands on a line of its own, so that descriptions keep their room.
constexpr int kWidestTerm = 25;

using Definition = std::pair<std::string, std::string>;

std::string spaces(int count) { return std::string(static_cast<std::size_t>(count), ' '); }

void add_paragraph(std::string& page, std::string_view text) {
  for (const std::string& line : wrap(text, kPageWidth - kIndent)) {
    page += spaces(kIndent) + line + "\n";
  }
}

void add_definitions(std::string& page, const std::vector<Definition>& definitions) {
  int widest = 0;
  for (const auto& [term, text] : definitions) {
    const int width = display_width(term);
    if (width <= kWidestTerm) widest = std::max(widest, width);
  }
  const int column = widest + kGap;
  for (const auto& [term, text] : definitions) {
    std::string line = spaces(kIndent) + pad_right(term, column);
    if (display_width(term) > widest) {
      page += spaces(kIndent) + term + "\n";
      line = spaces(kIndent + column);
    }
    for (const std::string& part : wrap(text, kPageWidth - kIndent - column)) {
      page += line + part + "\n";
      line = spaces(kIndent + column);
    }
  }
}

/// Collects lines of one kind and lays them out when another kind begins.
class Layout {
 public:
  explicit Layout(std::string& page) : page_(page) {}

  void add_line(std::string_view line) {
    constexpr std::string_view kMark = ":: ";
    const std::size_t mark = line.find(kMark);
    if (line.empty()) {
      flush();
      page_ += "\n";
    } else if (line.front() == ' ' && !definitions_.empty()) {
      definitions_.back().second += line.substr(line.find_first_not_of(' ') - 1);
    } else if (line.front() == ' ') {
      flush();
      page_ += fmt::format("{}{}\n", spaces(kIndent), line.substr(1));
    } else if (mark != std::string_view::npos) {
      if (!paragraph_.empty()) flush();
      definitions_.emplace_back(line.substr(0, mark), line.substr(mark + kMark.size()));
    } else {
      if (!definitions_.empty()) flush();
      paragraph_ += fmt::format("{} ", line);
    }
  }

  void flush() {
    add_paragraph(page_, paragraph_);
    add_definitions(page_, definitions_);
    paragraph_.clear();
    definitions_.clear();
  }

 private:
  std::string& page_;
  std::string paragraph_;
  std::vector<Definition> definitions_;
};

void add_section(std::string& page, std::string_view heading, std::string_view text) {
  page += fmt::format("\n{}\n", heading);
  Layout layout(page);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    layout.add_line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  layout.flush();
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// "-h, --help" or "--query WORD|@INDEX" or "SCENE".
std::string term_of(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name(true);
  std::string names;
  for (const std::string& name : option.get_snames()) names += "-" + name + ", ";
  for (const std::string& name : option.get_lnames()) names += "--" + name + ", ";
  names.resize(names.size() - 2);
  // A flag takes no value.
  if (option.get_items_expected_max() == 0) return names;
  return fmt::format("{} {}", names, option.get_type_name());
}

void add_options(std::string& page, const std::string& heading,
                 const std::vector<const CLI::Option*>& options) {
  if (options.empty()) return;
  page += fmt::format("\n{}\n", heading);
  std::vector<Definition> definitions;
  for (const CLI::Option* option : options) {
    definitions.emplace_back(term_of(*option), option->get_description());
  }
  add_definitions(page, definitions);
}

std::vector<Definition> commands_of(const CLI::App& app) {
  std::vector<Definition> commands;
  for (const CLI::App* command : listed_commands(app)) {
    commands.emplace_back(command->get_name(), command->get_description());
  }
  return commands;
}

void add_what_is_known(std::string& page, const CLI::App& app) {
  if (const auto commands = commands_of(app); !commands.empty()) {
    page += "\nCOMMANDS\n";
    add_definitions(page, commands);
  }
  add_options(page, "ARGUMENTS",
              app.get_options([](const CLI::Option* o) { return o->get_positional(); }));
  for (const std::string& group : app.get_groups()) {
    add_options(page, upper(group), app.get_options([&group](const CLI::Option* o) {
      return o->get_group() == group && o->nonpositional();
    }));
  }
}

}  // namespace

std::string PageFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode /*mode*/) const {
  std::string page = "NAME\n";
  add_paragraph(page, fmt::format("{} - {}", name, app->get_description()));
  for (const Page::Section& section : page_.sections) {
    add_section(page, section.heading, section.text);
    if (section.heading == "DESCRIPTION") add_what_is_known(page, *app);
  }
  return page;
}

std::vector<const CLI::App*> listed_commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

std::string short_help(const CLI::App& app) {
  std::string text = "Usage: fovea COMMAND [ARGUMENT]...\n\n";
  add_definitions(text, commands_of(app));
  return text + "\nTry this first, or see fovea --help:\n\n" +
         "    fovea explain --text \"Your journey starts with one step\"\n";
}

}  // namespace fovea::cli
