// SPDX-License-Identifier: Apache-2.0
//
// Manual pages in roff (man.h), with the macros of man(7).

#include "cli/shell/man.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "fovea/info.h"

#include "cli/shell/help.h"
#include "cli/shell/page_writer.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

// Keeps lines of roff below 80 bytes including escapes, as mandoc requires.
constexpr int kSourceWidth = 60;

std::string escaped(std::string_view text) {
  std::string result;
  // At the beginning of a line, "." and "'" start a request.
  if (text.starts_with('.') || text.starts_with('\'')) result = "\\&";
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";  // remains a minus sign, so that options can be copied
    } else {
      result += c;
    }
  }
  return result;
}

// Returns the name of a command's man page: "fovea-train-scene" for "fovea train scene".
std::string page_name(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), ' ', '-');
  return result;
}

std::string date_of_page() {
  std::time_t time = std::time(nullptr);
  if (const char* epoch = std::getenv("SOURCE_DATE_EPOCH"); epoch != nullptr) {
    const std::string_view text = epoch;
    std::from_chars(text.data(), text.data() + text.size(), time);
  }
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(time));
}

class RoffWriter : public PageWriter {
 public:
  explicit RoffWriter(std::string& page) : page_(page) {}

  void name(std::string_view name, std::string_view description) override {
    std::string title = page_name(name);
    page_ +=
        fmt::format(".TH {} 1 {} \"Fovea {}\"\n.SH NAME\n{} \\- {}\n", escaped(upper(title)),
                    date_of_page(), build_info().version, escaped(title), escaped(description));
  }
  void heading(std::string_view text) override {
    page_ += fmt::format(".SH {}\n", text);
    gap_ = false;
  }
  void paragraph(std::string_view text) override {
    begin_paragraph();
    add_text(text);
  }
  void verbatim(const std::vector<std::string_view>& lines) override {
    begin_paragraph();
    page_ += ".nf\n";
    for (const std::string_view line : lines) page_ += escaped(line) + "\n";
    page_ += ".fi\n";
  }
  void groups(const std::vector<DefinitionGroup>& groups) override {
    gap_ = false;
    for (const auto& [heading, definitions] : groups) {
      if (!heading.empty()) page_ += fmt::format(".SS {}\n", escaped(heading));
      for (const auto& [term, text] : definitions) {
        page_ += fmt::format(".TP\n\\fB{}\\fR\n", escaped(term));
        add_text(text);
      }
    }
  }
  void gap() override { gap_ = true; }

 private:
  // No .PP before definitions, which add their own gap, or after a heading, which needs none.
  void begin_paragraph() {
    if (gap_) page_ += ".PP\n";
    gap_ = false;
  }

  // Starts each sentence on a new line, as man(7) recommends.
  void add_text(std::string_view text) {
    while (!text.empty()) {
      std::size_t end = text.find(". ", 1);
      while (end < text.size() && text[end - 1] == ' ')
        end = text.find(". ", end + 1);  // "query . key"
      end = std::min(end, text.size());
      const std::string_view sentence = text.substr(0, std::min(end + 1, text.size()));
      for (const std::string& line : wrap(sentence, kSourceWidth)) page_ += escaped(line) + "\n";
      text.remove_prefix(std::min(end + 2, text.size()));
    }
  }

  std::string& page_;
  bool gap_ = false;
};

}  // namespace

std::string man_page(const CLI::App& app) {
  std::string page;
  RoffWriter writer(page);
  write_page(writer, app);
  return page;
}

}  // namespace fovea::cli
