// SPDX-License-Identifier: Apache-2.0
//
// `fovea translate` (command.h).

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fovea/error.h"

#include "cli/pages/pages.h"
#include "cli/shell/message.h"
#include "cli/shell/option_types.h"
#include "cli/shell/output.h"
#include "cli/train/command.h"
#include "core/fail.h"
#include "picture/alignment.h"
#include "text/text_width.h"
#include "train/pairs.h"
#include "train/run_folder.h"
#include "train/search.h"
#include "train/trainer.h"

namespace fovea::cli {
namespace {

constexpr std::int64_t kMaxBeams = 100;

train::Model load(const std::string& path) {
  const train::RunFolder folder(path);
  train::Model model = folder.read_model();
  folder.load_best(*model.translator);
  model.translator->model().evaluate();
  return model;
}

class TranslateCommand : public Command {
 public:
  explicit TranslateCommand(CLI::App& parent);
  int run() const override;

 private:
  /// Throws UsageError for incompatible arguments.
  void check_usage() const;
  struct Text {
    std::string text;
    std::string place = {};  // for messages; empty for an argument
  };
  std::vector<Text> texts() const;
  static std::vector<std::int64_t> tokens_of(const train::Model& model, const Text& text);
  int check(train::Model& model) const;
  int translate(train::Model& model) const;

  std::string folder_;
  std::vector<std::string> texts_;
  std::int64_t beams_ = 1;
  bool show_attention_ = false;
  std::string html_;
  std::string pairs_;
  bool json_ = false;
};

TranslateCommand::TranslateCommand(CLI::App& parent)
    : Command(parent, "translate", "translate with a trained model", kTranslatePage) {
  app_->add_option("DIR", folder_, "The folder of a run of fovea train translate.");
  app_->add_option("TEXT", texts_, "A text to translate; \"-\" for the lines of standard input.")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_integer(*app_, "--beams", beams_, {std::int64_t{1}, kMaxBeams},
              "The width of the beam search (default 1: greedy decoding).");
  app_->add_flag("--show-attention", show_attention_,
                 "Print the weights of each translation as a picture.");
  app_->add_option("--html", html_, "Write the weights as an HTML page to FILE.")
      ->type_name("FILE");
  app_->add_option("--pairs", pairs_, "Translate the sources in FILE and compare with the targets.")
      ->type_name("FILE");
  app_->add_flag(
      "--json", json_,
      "Print JSON instead of text: one object per TEXT in an array; with --pairs, one object.");
}

void TranslateCommand::check_usage() const {
  if (folder_.empty()) throw UsageError("expected a DIR with a model");
  if (given("--pairs")) {
    for (const char* const option : {"TEXT", "--beams", "--show-attention", "--html"}) {
      if (given(option)) throw UsageError(fmt::format("{} does not go with --pairs", option));
    }
    if (pairs_.empty()) throw UsageError("--pairs: expected a file name, got \"\"");
  } else if (texts_.empty()) {
    throw UsageError("expected a TEXT, or --pairs FILE");
  }
  if (given("--html")) require_file_name("--html", html_);
}

std::vector<TranslateCommand::Text> TranslateCommand::texts() const {
  std::vector<Text> result;
  for (const std::string& text : texts_) {
    if (text != "-") {
      result.push_back({text});
      continue;
    }
    std::int64_t number = 0;
    for (std::string line; std::getline(std::cin, line);) {
      // As in files of pairs.
      std::string_view rest = ++number == 1 ? without_byte_order_mark(line) : line;
      if (rest.ends_with('\r')) rest.remove_suffix(1);
      result.push_back({std::string(rest), fmt::format("line {} of standard input: ", number)});
    }
  }
  return result;
}

/// Returns the tokens of a text. Throws InvalidArgument, with its place, if it is not valid.
std::vector<std::int64_t> TranslateCommand::tokens_of(const train::Model& model, const Text& text) {
  const std::int64_t most = model.options.max_length;
  try {
    if (text.text.empty()) fail("expected a text to translate, got an empty one");
    std::vector<std::int64_t> tokens = model.source.tokens(text.text);
    if (static_cast<std::int64_t>(tokens.size()) > most) {
      fail("expected at most {} characters, got {}: \"{}\"", most - 1, tokens.size() - 1,
           fit(visible(text.text), 40));
    }
    return tokens;
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(text.place + error.what());
  }
}

int TranslateCommand::check(train::Model& model) const {
  const std::vector<train::Pair> pairs = train::read_pairs(pairs_);
  train::check_pairs(model, pairs, pairs_);
  const train::Validation found =
      train::validate(*model.translator, model.source, model.target, pairs);
  if (json_) {
    nlohmann::ordered_json json = {
        {"pairs", pairs.size()}, {"exact", found.exact}, {"chrf2", found.chrf}};
    json["aligned"] = found.counted > 0 ? nlohmann::ordered_json(found.aligned) : nullptr;
    write_stdout(json.dump(1) + "\n");
    return 0;
  }
  std::string text = fmt::format("{:.2f} % of {} pairs are exact, chrF2 {:.2f}\n",
                                 100.0 * found.exact, pairs.size(), found.chrf);
  if (found.counted > 0) {
    text += fmt::format("{:.2f} % of {} characters looked the most at where they come from\n",
                        100.0 * found.aligned, found.counted);
  }
  write_stdout(text);
  return 0;
}

int TranslateCommand::translate(train::Model& model) const {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  std::vector<train::Figure> figures;
  for (const Text& each : texts()) {
    const std::string& text = each.text;
    const std::vector<std::int64_t> source = tokens_of(model, each);
    const std::int64_t most = model.options.max_length;
    const train::Translation found =
        train::translate_with_beams(*model.translator, source, beams_, most);
    const std::string answer = model.target.text(found.tokens);
    const train::Picture picture{static_cast<std::int64_t>(figures.size() + 1),
                                 text + " → " + answer, text, answer, found.weights};
    if (given("--html")) figures.push_back(train::picture_as_figure(picture));
    if (json_) {
      nlohmann::ordered_json weights = nlohmann::ordered_json::array();
      for (std::int64_t t = 0; t < found.weights.extent(0); ++t) {
        const float* const row = &found.weights.at<float>({t, 0});
        weights.push_back(std::vector<float>(row, row + found.weights.extent(1)));
      }
      json.push_back({{"source", text},
                      {"target", answer},
                      {"log_probability", found.log_probability},
                      {"weights", weights}});
      continue;
    }
    write_stdout(visible(answer) + "\n");
    if (show_attention_) write_stdout("\n" + train::picture_as_text(picture) + "\n");
  }
  if (json_) write_stdout(json.dump(1) + "\n");
  if (given("--html")) write_file(html_, train::figures_as_html("Where it looked", figures));
  return 0;
}

int TranslateCommand::run() const {
  check_usage();
  train::Model model = load(folder_);
  return given("--pairs") ? check(model) : translate(model);
}

}  // namespace

std::unique_ptr<Command> make_translate(CLI::App& parent) {
  return std::make_unique<TranslateCommand>(parent);
}

}  // namespace fovea::cli
