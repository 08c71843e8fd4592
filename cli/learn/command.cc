// SPDX-License-Identifier: Apache-2.0
//
// `fovea learn` (command.h).

#include "cli/learn/command.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "fovea/error.h"
#include "fovea/scene.h"

#include "cli/learn/lessons.h"
#include "cli/pages/pages.h"
#include "cli/shell/browser.h"
#include "cli/shell/message.h"
#include "cli/shell/option_types.h"
#include "cli/shell/output.h"
#include "cli/shell/terminal.h"
#include "core/fail.h"
#include "io/file_io.h"
#include "scene/html/course.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexPage = "index.html";

/// Returns the name of the lesson with this number, or `typed` in the form of a name:
/// "dot-product" for "Dot product".
std::string lesson_name(const std::string& typed) {
  const std::vector<std::string> names = lesson_names();
  std::size_t number = 0;
  const char* end = typed.data() + typed.size();
  const auto [stopped, error] = std::from_chars(typed.data(), end, number);
  if (error == std::errc() && stopped == end && number >= 1 && number <= names.size()) {
    return names[number - 1];
  }
  std::string name = typed;
  for (char& c : name) {
    c = c == ' ' || c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

/// Returns $XDG_DATA_HOME/fovea/learn, or the folder that the XDG specification names instead.
fs::path default_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value == nullptr ? "" : value);
  };
  if (const fs::path data = variable("XDG_DATA_HOME"); data.is_absolute()) {
    return data / "fovea" / "learn";
  }
  const fs::path home = variable("HOME");
  if (!home.is_absolute()) {
    throw UsageError("HOME is not set; say where to write the pages with --output DIR");
  }
  return home / ".local" / "share" / "fovea" / "learn";
}

class LearnCommand : public Command {
 public:
  explicit LearnCommand(CLI::App& parent);
  int run() const override;

 private:
  struct File {
    std::string name;
    std::string content;
  };

  /// Returns all pages, the index last.
  std::vector<File> pages(const std::vector<Lesson>& lessons) const;
  /// Creates the folder and writes the pages. Returns the folder's absolute path.
  fs::path write_pages(const std::vector<Lesson>& lessons) const;
  std::string listed(const std::vector<Lesson>& lessons, const fs::path& folder) const;

  std::string lesson_;
  std::string output_;
  std::string language_ = "en";
  bool list_ = false;
  bool no_open_ = false;
};

LearnCommand::LearnCommand(CLI::App& parent)
    : Command(parent, "learn", "read the lessons on attention in the browser", kLearnPage) {
  // CLI11 runs the transformation before the check.
  app_->add_option("LESSON", lesson_,
                   "The lesson to open, by its name or number. Default: the index.")
      ->check(is_one_of(lesson_names()))
      ->transform(CLI::Validator(
          [](std::string& typed) {
            typed = lesson_name(typed);
            return std::string();
          },
          ""));
  app_->add_flag("--list", list_, "Only list the lessons; write no pages.");
  app_->add_flag("--no-open", no_open_, "Write the pages, but do not open a browser.");
  app_->add_option("--output", output_,
                   "Write the pages to the folder DIR. Default: fovea/learn in $XDG_DATA_HOME, "
                   "which is ~/.local/share if not set.")
      ->type_name("DIR");
  add_choice(*app_, "--language", language_, scene::page_languages(),
             fmt::format("The language of the pages' own texts: {}. Default: en. The lessons "
                         "themselves are in English.",
                         fmt::join(scene::page_languages(), ", ")))
      ->type_name("LANGUAGE");
}

std::vector<LearnCommand::File> LearnCommand::pages(const std::vector<Lesson>& lessons) const {
  scene::html::Course course{.lessons = {}, .index = kIndexPage, .language = language_};
  for (const Lesson& lesson : lessons) {
    course.lessons.push_back({lesson.scene.title, lesson.page, lesson.summary});
  }
  std::vector<File> files;
  for (std::size_t i = 0; i < lessons.size(); ++i) {
    const scene::Trace trace = scene::trace_scene(lessons[i].scene);
    files.push_back({lessons[i].page, scene::html::lesson_page(course, i, trace)});
  }
  files.push_back({kIndexPage, scene::html::index_page(course)});
  return files;
}

fs::path LearnCommand::write_pages(const std::vector<Lesson>& lessons) const {
  std::error_code error;
  fs::path folder = given("--output") ? fs::path(output_) : default_folder();
  folder = fs::absolute(folder, error).lexically_normal();
  fs::create_directories(folder, error);
  std::error_code ignored;  // `error` has the reason
  if (!fs::is_directory(folder, ignored)) {
    throw OutputError(
        fmt::format("{}: cannot be created as a folder: {}", folder.string(),
                    (error ? error : make_error_code(std::errc::not_a_directory)).message()));
  }
  const std::vector<File> files = pages(lessons);
  // First check all files, so that a refusal leaves the folder unchanged.
  for (const File& file : files) {
    const std::string path = (folder / file.name).string();
    constexpr std::int64_t kMaxPage = std::int64_t{64} << 20;
    if (!fs::is_regular_file(path, error)) continue;
    if (read_file(path, kMaxPage).find(scene::html::kCourseMark) == std::string::npos) {
      throw OutputError(fmt::format(
          "{}: exists and is not a page of fovea learn; choose another folder with --output DIR",
          path));
    }
  }
  for (const File& file : files) write_file((folder / file.name).string(), file.content);
  return folder;
}

std::string LearnCommand::listed(const std::vector<Lesson>& lessons, const fs::path& folder) const {
  std::string out;
  std::size_t widest = 0;
  for (const Lesson& lesson : lessons) widest = std::max(widest, lesson.name.size());
  for (std::size_t i = 0; i < lessons.size(); ++i) {
    const Lesson& lesson = lessons[i];
    out += fmt::format("{}  {:<{}}  {}\n", i + 1, lesson.name, widest, lesson.scene.title);
    for (const std::string& line : wrap(lesson.summary, choose_width(false) - 3)) {
      out += fmt::format("   {}\n", line);
    }
    if (!folder.empty()) out += fmt::format("   {}\n", file_url((folder / lesson.page).string()));
  }
  return out;
}

int LearnCommand::run() const {
  if (given("--output") && output_.empty()) {
    throw UsageError("--output: expected the name of a folder, got \"\"");
  }
  const std::vector<Lesson> lessons = load_lessons();
  if (list_) {
    for (const char* option : {"LESSON", "--output", "--no-open"}) {
      if (given(option)) throw UsageError(fmt::format("--list goes without {}", option));
    }
    write_stdout(listed(lessons, {}));
    return 0;
  }
  const fs::path folder = write_pages(lessons);
  std::string page = kIndexPage;
  for (const Lesson& lesson : lessons) {
    if (lesson.name == lesson_) page = lesson.page;
  }
  const std::string url = file_url((folder / page).string());
  std::string out = given("LESSON") ? std::string() : listed(lessons, folder) + "\n";
  const bool opening = !no_open_ && open_in_browser(url);
  out += fmt::format("{} {}\n", opening ? "Opening in the browser:" : "Open in a browser:", url);
  write_stdout(out);
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_learn(CLI::App& parent) {
  return std::make_unique<LearnCommand>(parent);
}

}  // namespace fovea::cli
