// SPDX-License-Identifier: Apache-2.0
//
// Manual pages (help.h).

#include "cli/shell/help.h"

#include <algorithm>
#include <cctype>
#include <memory>

#include <fmt/format.h>

#include "cli/shell/page_writer.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

constexpr int kPageWidth = 80;
constexpr int kIndent = 4;
constexpr int kGap = 2;
constexpr int kSubheadingIndent = 2;
// Wider terms get a line of their own, so that descriptions are not squeezed.
constexpr int kWidestTerm = 25;

std::string spaces(int count) { return std::string(static_cast<std::size_t>(count), ' '); }

class TextWriter : public PageWriter {
 public:
  explicit TextWriter(std::string& page) : page_(page) {}

  void name(std::string_view name, std::string_view description) override {
    page_ += "NAME\n";
    paragraph(fmt::format("{} - {}", name, description));
  }
  void heading(std::string_view text) override { page_ += fmt::format("\n{}\n", text); }
  void paragraph(std::string_view text) override {
    for (const std::string& line : wrap(text, kPageWidth - kIndent)) {
      page_ += spaces(kIndent) + line + "\n";
    }
  }
  void verbatim(const std::vector<std::string_view>& lines) override {
    for (const std::string_view line : lines) page_ += fmt::format("{}{}\n", spaces(kIndent), line);
  }
  void groups(const std::vector<DefinitionGroup>& groups) override;
  void gap() override { page_ += "\n"; }

 private:
  void definition(const Definition& definition, int widest);

  std::string& page_;
};

void TextWriter::groups(const std::vector<DefinitionGroup>& groups) {
  int widest = 0;
  for (const DefinitionGroup& group : groups) {
    for (const auto& [term, text] : group.definitions) {
      const int width = display_width(term);
      if (width <= kWidestTerm) widest = std::max(widest, width);
    }
  }
  for (const auto& [heading, definitions] : groups) {
    if (!heading.empty()) page_ += spaces(kSubheadingIndent) + heading + "\n";
    for (const Definition& one : definitions) definition(one, widest);
  }
}

void TextWriter::definition(const Definition& definition, int widest) {
  const auto& [term, text] = definition;
  const int column = widest + kGap;
  std::string line = spaces(kIndent) + pad_right(term, column);
  if (display_width(term) > widest) {
    page_ += spaces(kIndent) + term + "\n";
    line = spaces(kIndent + column);
  }
  for (const std::string& part : wrap(text, kPageWidth - kIndent - column)) {
    page_ += line + part + "\n";
    line = spaces(kIndent + column);
  }
}

// Collects consecutive lines of the same kind and writes them together.
class Layout {
 public:
  explicit Layout(PageWriter& writer) : writer_(writer) {}

  void add_line(std::string_view line) {
    constexpr std::string_view kMark = ":: ";
    const std::size_t mark = line.find(kMark);
    if (line.empty()) {
      flush();
      writer_.gap();
    } else if (line.front() == ' ' && !definitions_.empty()) {
      definitions_.back().second += line.substr(line.find_first_not_of(' ') - 1);
    } else if (line.front() == ' ') {
      if (!paragraph_.empty()) flush();
      verbatim_.push_back(line.substr(1));
    } else if (mark != std::string_view::npos) {
      if (definitions_.empty()) flush();
      definitions_.emplace_back(line.substr(0, mark), line.substr(mark + kMark.size()));
    } else {
      if (paragraph_.empty()) flush();
      paragraph_ += fmt::format("{} ", line);
    }
  }

  void flush() {
    if (!paragraph_.empty()) writer_.paragraph(paragraph_);
    if (!definitions_.empty()) writer_.definitions(definitions_);
    if (!verbatim_.empty()) writer_.verbatim(verbatim_);
    paragraph_.clear();
    definitions_.clear();
    verbatim_.clear();
  }

 private:
  PageWriter& writer_;
  std::string paragraph_;
  std::vector<Definition> definitions_;
  std::vector<std::string_view> verbatim_;
};

void write_section(PageWriter& writer, std::string_view heading, std::string_view text) {
  writer.heading(heading);
  Layout layout(writer);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    layout.add_line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  layout.flush();
}

// Returns "-h, --help", "--query WORD|@INDEX" or "SCENE".
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

void write_options(PageWriter& writer, const std::string& heading,
                   const std::vector<const CLI::Option*>& options) {
  if (options.empty()) return;
  writer.heading(heading);
  std::vector<Definition> definitions;
  for (const CLI::Option* option : options) {
    definitions.emplace_back(term_of(*option), option->get_description());
  }
  writer.definitions(definitions);
}

// Returns the visible commands, grouped by their CLI11 group (their purpose). There are no
// subheadings if all commands are in the same group.
std::vector<DefinitionGroup> command_groups(const CLI::App& app) {
  std::vector<DefinitionGroup> groups;
  for (const CLI::App* command : listed_commands(app)) {
    auto group = std::ranges::find(groups, command->get_group(), &DefinitionGroup::heading);
    if (group == groups.end()) group = groups.insert(groups.end(), {command->get_group(), {}});
    group->definitions.emplace_back(command->get_name(), command->get_description());
  }
  if (groups.size() == 1) groups.front().heading.clear();
  return groups;
}

void write_commands_and_options(PageWriter& writer, const CLI::App& app) {
  if (const auto groups = command_groups(app); !groups.empty()) {
    writer.heading("COMMANDS");
    writer.groups(groups);
  }
  write_options(writer, "ARGUMENTS",
                app.get_options([](const CLI::Option* o) { return o->get_positional(); }));
  for (const std::string& group : app.get_groups()) {
    if (group.empty()) continue;  // hidden
    write_options(writer, upper(group), app.get_options([&group](const CLI::Option* o) {
      return o->get_group() == group && o->nonpositional();
    }));
  }
}

// Returns the command as typed: "fovea train scene".
std::string full_name(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : full_name(*parent) + " " + app.get_name();
}

}  // namespace

std::string PageFormatter::make_help(const CLI::App* app, std::string /*name*/,
                                     CLI::AppFormatMode /*mode*/) const {
  std::string page;
  TextWriter writer(page);
  write_page(writer, *app);
  return page;
}

void write_page(PageWriter& writer, const CLI::App& app) {
  const auto formatter = std::dynamic_pointer_cast<PageFormatter>(app.get_formatter());
  writer.name(full_name(app), app.get_description());
  for (const Page::Section& section : formatter->page().sections) {
    write_section(writer, section.heading, section.text);
    if (section.heading == "DESCRIPTION") write_commands_and_options(writer, app);
  }
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::vector<const CLI::App*> listed_commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

std::string short_help(const CLI::App& app) {
  std::string text = "Usage: fovea COMMAND [ARGUMENT]...\n\n";
  TextWriter(text).groups(command_groups(app));
  return text +
         "\nTry: fovea explain --text \"Your journey starts with one step\", or fovea --help\n";
}

}  // namespace fovea::cli
