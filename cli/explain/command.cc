// SPDX-License-Identifier: Apache-2.0
//
// `fovea explain` (command.h).

#include "cli/explain/command.h"

#include <cctype>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fovea/error.h"
#include "fovea/scene.h"

#include "cli/explain/input.h"
#include "cli/pages/pages.h"
#include "cli/shell/message.h"
#include "cli/shell/option_types.h"
#include "cli/shell/output.h"
#include "cli/shell/terminal.h"
#include "core/fail.h"

namespace fovea::cli {
namespace {

constexpr std::int64_t kMaxDim = 4096;  // as in scenes

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

class ExplainCommand : public Command {
 public:
  explicit ExplainCommand(CLI::App& parent);
  int run() const override;

 private:
  enum class Format { kText, kJson, kMarkdown, kLatex, kHtml, kSlides };

  void add_options();
  /// Throws UsageError for incompatible arguments.
  void check_usage() const;
  Format format() const;
  scene::TextOptions text_options(bool to_file) const;
  /// Returns the trace of a scene file, or of standard input for "-".
  scene::Trace trace_file(const std::string& file) const;
  scene::Trace trace() const;
  std::string story(const scene::Trace& trace) const;

  std::vector<std::string> scenes_;
  std::string query_;
  std::optional<Format> format_;
  std::string output_;
  ColorWish color_ = ColorWish::kAuto;
  std::int64_t width_ = 0;
  scene::PageOptions page_;
  bool check_ = false;
  std::string text_;
  scene::SentenceOptions sentence_;
};

ExplainCommand::ExplainCommand(CLI::App& parent)
    : Command(parent, "explain", "show every step of attention on a small example", kExplainPage) {
  add_options();
}

void ExplainCommand::add_options() {
  app_->add_option(
      "SCENE", scenes_,
      "A scene file, or \"-\" for standard input; two of them for one page that compares "
      "them.");
  app_->add_option("--query", query_,
                   "The word to explain in detail; @INDEX, counted from 0, for a word that occurs "
                   "twice (@ITEM:INDEX in a batch). Default: set by the scene.")
      ->type_name("WORD|@INDEX");
  add_choice(*app_, "--format", format_,
             {{"text", Format::kText},
              {"json", Format::kJson},
              {"markdown", Format::kMarkdown},
              {"latex", Format::kLatex},
              {"html", Format::kHtml},
              {"slides", Format::kSlides}},
             "text, json, markdown, latex, html or slides. Default: from the extension of --output "
             "FILE (.txt, .json, .md, .markdown, .tex, .html, .htm), else text.")
      ->type_name("FORMAT");
  app_->add_option("--output", output_, "Write to FILE instead of standard output.")
      ->type_name("FILE");
  app_->add_flag("--check", check_,
                 "Compare with the scene's expected numbers and print the result instead of the "
                 "explanation; with --format json, print the complete JSON. Exit 1 on a mismatch.");
  add_choice(
      *app_, "--color", color_,
      {{"auto", ColorWish::kAuto}, {"always", ColorWish::kAlways}, {"never", ColorWish::kNever}},
      "Use colours in text: always, never, or only if standard output is a terminal with colours "
      "(auto, the default).")
      ->type_name("WHEN");
  add_integer(
      *app_, "--width", width_, {std::int64_t{scene::kMinWidth}, std::int64_t{scene::kMaxWidth}},
      fmt::format("The width of text in columns, from {} to {}. Default: the terminal's width, "
                  "from 60 to 160; 100 without a terminal.",
                  scene::kMinWidth, scene::kMaxWidth));

  add_choice(*app_, "--language", page_.language, scene::page_languages(),
             fmt::format("The language of the page's own texts: {}. Default: en.",
                         fmt::join(scene::page_languages(), ", ")))
      ->type_name("LANGUAGE");

  // The group's name becomes a heading of the page.
  app_->option_defaults()->group("Options for a sentence");
  app_->add_option("--text", text_, "Explain this sentence instead of a scene.")
      ->type_name("SENTENCE");
  add_integer(*app_, "--dim", sentence_.dim, {std::int64_t{1}, kMaxDim},
              "The embedding dimension (default 4).");
  add_integer(*app_, "--seed", sentence_.seed,
              {std::uint64_t{0}, std::uint64_t{std::numeric_limits<std::uint32_t>::max()}},
              "The seed of the random numbers (default 42). The numbers equal NumPy's.");
  app_->add_flag("--causal", sentence_.causal, "No word attends to later words.");
  add_integer(*app_, "--heads", sentence_.heads, {std::int64_t{1}, kMaxDim},
              "The number of heads, which split the embedding (default 1).");
  add_choice(*app_, "--projections", sentence_.random_projections,
             {{"none", false}, {"random", true}},
             "The projections from embeddings to queries, keys and values: none (the default) or "
             "random.")
      ->type_name("none|random");
  app_->option_defaults()->group("Options");
}

ExplainCommand::Format ExplainCommand::format() const {
  if (format_) return *format_;
  static constexpr std::pair<std::string_view, Format> kEndings[] = {
      {"", Format::kText},        {".txt", Format::kText},          {".json", Format::kJson},
      {".md", Format::kMarkdown}, {".markdown", Format::kMarkdown}, {".tex", Format::kLatex},
      {".html", Format::kHtml},   {".htm", Format::kHtml}};
  const std::string ending = lower(std::filesystem::path(output_).extension().string());
  std::vector<std::string_view> endings;
  for (const auto& [known, format] : kEndings) {
    if (known == ending) return format;
    if (!known.empty()) endings.push_back(known);
  }
  throw UsageError(fmt::format(
      "--output: expected a name that ends in one of {}, or --format FORMAT, got \"{}\"",
      fmt::join(endings, ", "), output_));
}

void ExplainCommand::check_usage() const {
  const bool sentence = given("--text");
  if (sentence && given("SCENE")) throw UsageError("expected a SCENE or --text SENTENCE, got both");
  if (!sentence && !given("SCENE")) throw UsageError("expected a SCENE file or --text SENTENCE");
  for (const char* option : {"--dim", "--seed", "--causal", "--heads", "--projections"}) {
    if (!sentence && given(option)) {
      throw UsageError(fmt::format("{} goes with --text; a scene file says it itself", option));
    }
  }
  for (const std::string& scene : scenes_) {
    if (scene.empty()) throw UsageError("SCENE: expected a file name, got \"\"");
  }
  if (given("--output")) require_file_name("--output", output_);
  static_cast<void>(format());  // refuses an unknown ending
  if (given("--width") && format() != Format::kText) {
    throw UsageError("--width goes with text, which this output is not");
  }
  if (given("--language") && format() != Format::kHtml && format() != Format::kSlides) {
    throw UsageError("--language goes with html and slides, which this output is not");
  }
  if (scenes_.size() > 1) {
    if (scenes_.size() > 2 || format() != Format::kHtml) {
      const bool words = scenes_.front().find_first_of("./") == std::string::npos;
      const std::string given = fmt::format("{}", fmt::join(scenes_, " "));
      throw UsageError(fmt::format(
          "SCENE: expected one, or two for a page (--output FILE.html), got {}{}", scenes_.size(),
          words ? fmt::format("; a sentence: --text \"{}\"", given) : ": " + given));
    }
    if (check_) throw UsageError("--check goes with one SCENE, got two");
    if (scenes_[0] == "-" && scenes_[1] == "-") {
      throw UsageError("SCENE: expected \"-\" for standard input at most once, got it twice");
    }
  }
  if (!check_) return;
  if (sentence)
    throw UsageError("--check goes with a SCENE that has \"expect\"; a sentence has none");
  const bool checkable = format() == Format::kText || format() == Format::kJson;
  if (!checkable && !given("--output")) {
    throw UsageError("--check goes with the formats text and json, or with --output FILE");
  }
}

scene::TextOptions ExplainCommand::text_options(bool to_file) const {
  return {.color = choose_color(color_, to_file),
          .width = width_ > 0 ? static_cast<int>(width_) : choose_width(to_file)};
}

scene::Trace ExplainCommand::trace_file(const std::string& file) const {
  const bool from_stdin = file == "-";
  std::error_code missing;  // if either file is missing, they are different
  if (given("--output") && std::filesystem::equivalent(file, output_, missing)) {
    throw UsageError(fmt::format("--output: {} is the scene itself; name another file", output_));
  }
  scene::Scene scene = from_stdin ? load_scene_from_stdin() : load_scene_from_file(file);
  const std::string name = from_stdin ? "standard input" : file;
  if (check_ && scene.expect.empty()) {
    fail("{}: nothing to check: the scene has no \"expect\"", name);
  }
  // A page of two scenes shows the word that is chosen in the first one.
  if (given("--query") && &file == scenes_.data()) scene::set_focus(scene, query_);
  try {
    return scene::trace_scene(scene);
  } catch (const InvalidArgument& error) {
    fail("{}: {}", name, error.what());
  }
}

scene::Trace ExplainCommand::trace() const {
  if (!given("--text")) return trace_file(scenes_.front());
  scene::Scene scene = scene::scene_from_sentence(text_, sentence_);
  if (given("--query")) scene::set_focus(scene, query_);
  return scene::trace_scene(scene);
}

std::string ExplainCommand::story(const scene::Trace& trace) const {
  switch (format()) {
    case Format::kJson:
      return scene::to_json(trace);
    case Format::kMarkdown:
      return scene::to_markdown(trace);
    case Format::kLatex:
      return scene::to_latex(trace);
    case Format::kHtml:
      return scenes_.size() == 2 ? scene::to_html(trace, trace_file(scenes_[1]), page_)
                                 : scene::to_html(trace, page_);
    case Format::kSlides:
      return scene::to_slides(trace, page_);
    case Format::kText:
      break;
  }
  return scene::to_text(trace, text_options(given("--output")));
}

int ExplainCommand::run() const {
  check_usage();
  const scene::Trace result = trace();
  const bool to_file = given("--output");
  if (to_file) write_file(output_, story(result));
  if (check_ && (to_file || format() == Format::kText)) {
    write_stdout(scene::checks_to_text(result, text_options(false)));
  } else if (!to_file) {
    write_stdout(story(result));
  }
  return check_ && !result.passed() ? 1 : 0;
}

}  // namespace

std::unique_ptr<Command> make_explain(CLI::App& parent) {
  return std::make_unique<ExplainCommand>(parent);
}

}  // namespace fovea::cli
