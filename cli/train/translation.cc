// SPDX-License-Identifier: Apache-2.0
//
// `fovea train translate` (command.h).

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <omp.h>

#include "fovea/info.h"

#include "cli/pages/pages.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/interrupt.h"
#include "cli/shell/message.h"
#include "cli/shell/option_types.h"
#include "cli/shell/output.h"
#include "cli/shell/progress.h"
#include "cli/shell/stopwatch.h"
#include "cli/train/command.h"
#include "core/fail.h"
#include "picture/alignment.h"
#include "text/text_width.h"
#include "train/pairs.h"
#include "train/settings.h"
#include "train/trainer.h"
#include "train/translator.h"

namespace fovea::cli {
namespace {

constexpr std::int64_t kMaxCount = 1'000'000'000, kMaxWidth = 65536;
constexpr std::size_t kEvery = 20, kMaxValidation = 500;
constexpr const char* kAttentionPage = "attention.html";

/// The options of a new run. --resume reads their values from the existing run.
constexpr const char* kOfNewRuns[] = {
    "--rotary-base", "--data",   "--validation",      "--architecture", "--steps",
    "--batch",       "--width",  "--heads",           "--inner",        "--layers",
    "--dropout",     "--warmup", "--label-smoothing", "--seed",         "--validate-every",
    "--patience",    "--until",  "--learning-rate",   "--threads"};

train::TrainingData read_data(const train::RunSettings& settings) {
  train::TrainingData data;
  data.validation_file = settings.validation.empty() ? settings.data : settings.validation;
  std::vector<train::Pair> pairs = train::read_pairs(settings.data);
  if (!settings.validation.empty()) {
    data.training = std::move(pairs);
    data.validation = train::read_pairs(settings.validation);
    return data;
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const bool kept = i % kEvery == kEvery - 1 && data.validation.size() < kMaxValidation;
    (kept ? data.validation : data.training).push_back(std::move(pairs[i]));
  }
  if (data.validation.empty()) {
    fail(
        "{}: expected {} pairs or more, of which some can be kept to validate, got {}; or name "
        "others with --validation",
        settings.data, kEvery, data.training.size());
  }
  return data;
}

/// Returns the characters of one side of all pairs. Pairs of the same file that are kept to
/// validate are included, because the user did not choose them.
train::Vocabulary vocabulary(const train::TrainingData& data, const train::RunSettings& settings,
                             std::string train::Pair::*side) {
  std::vector<std::string_view> texts;
  for (const train::Pair& pair : data.training) texts.push_back(pair.*side);
  if (settings.validation.empty()) {
    for (const train::Pair& pair : data.validation) texts.push_back(pair.*side);
  }
  return train::Vocabulary::of(texts);
}

/// Returns 1.5 times the length of the longest text, plus 2.
std::int64_t max_length(const train::TrainingData& data) {
  std::size_t longest = 0;
  for (const auto* const pairs : {&data.training, &data.validation}) {
    for (const train::Pair& pair : *pairs) {
      longest =
          std::max({longest, code_points(pair.source).size(), code_points(pair.target).size()});
    }
  }
  return static_cast<std::int64_t>(longest + longest / 2 + 2);
}

/// Returns the default thread count: one if a step is so small that synchronization would cost more
/// than threads gain.
std::int64_t useful_threads(const train::Model& model, const train::TrainingData& data,
                            const train::TrainerOptions& options) {
  constexpr double kFlop = 1e10;
  double characters = 0.0;
  for (const train::Pair& pair : data.training) {
    characters += static_cast<double>(pair.source.size() + pair.target.size());
  }
  const double tokens = characters / 2 / static_cast<double>(data.training.size()) *
                        static_cast<double>(options.batch);
  // Per token, each parameter costs 2 flop in the forward pass and 4 in the backward pass (2 for
  // the gradient of the input, 2 for the gradient of the parameter).
  const double flop =
      6.0 * tokens * static_cast<double>(model.translator->model().parameters().count());
  return flop < kFlop ? 1 : omp_get_max_threads();
}

/// The progress line of a run.
class TrainLine {
 public:
  explicit TrainLine(std::int64_t steps) : steps_(steps) {}

  void show(const train::StepReport& report) {
    if (first_ < 0) first_ = report.steps - 1;
    tokens_ += report.tokens;
    loss_ = loss_ == 0.0 ? report.loss : 0.95 * loss_ + 0.05 * report.loss;
    const double seconds = watch_.seconds();
    if (seconds < shown_ + 0.2) return;
    shown_ = seconds;
    const double left = seconds / static_cast<double>(report.steps - first_) *
                        static_cast<double>(steps_ - report.steps);
    line_.show(fmt::format("step {} of {}, loss {:.4f}, {:.0f} tokens/s, {:.0f} s left",
                           report.steps, steps_, loss_, static_cast<double>(tokens_) / seconds,
                           left));
  }
  void clear() { line_.clear(); }
  /// Returns an exponential moving average of the loss.
  double loss() const { return loss_; }
  double seconds() const { return watch_.seconds(); }

 private:
  Progress line_;
  std::int64_t steps_, first_ = -1, tokens_ = 0;
  double loss_ = 0.0;
  Stopwatch watch_;
  double shown_ = 0.0;
};

std::string validation_line(const train::Validation& found, const TrainLine& line) {
  std::string text = fmt::format("{:8}  {:8.4f}  {:6.2f} %  {:6.2f}", found.steps, line.loss(),
                                 100.0 * found.exact, found.chrf);
  text += found.counted > 0 ? fmt::format("  {:6.2f} %", 100.0 * found.aligned) : "         -";
  return text + fmt::format("  {:6.1f} s{}\n", line.seconds(), found.best ? "" : "  not better");
}

class TrainTranslateCommand : public Command {
 public:
  explicit TrainTranslateCommand(CLI::App& parent);
  int run() const override;

 private:
  void add_options();
  /// Throws UsageError for incompatible arguments.
  void check_usage() const;

  std::string output_;
  bool resume_ = false;
  bool show_attention_ = false;
  train::TranslatorOptions model_;
  std::int64_t layers_ = 2;
  train::RunSettings settings_;
  std::optional<double> learning_rate_, rotary_base_, dropout_, label_smoothing_, until_;
};

TrainTranslateCommand::TrainTranslateCommand(CLI::App& parent)
    : Command(parent, "translate", "train a model to translate, from pairs of texts",
              kTrainTranslatePage) {
  add_options();
}

void TrainTranslateCommand::add_options() {
  train::TrainerOptions& run = settings_.trainer;
  app_->add_option("--data", settings_.data, "The training pairs.")->type_name("FILE");
  app_->add_option("--output", output_, "The folder of the run; created if it does not exist.")
      ->type_name("DIR");
  app_->add_flag("--resume", resume_, "Continue the run in DIR with its own options.");
  app_->add_option("--validation", settings_.validation,
                   "Pairs for validation, instead of some of the training pairs.")
      ->type_name("FILE");
  app_->add_flag("--show-attention", show_attention_,
                 "At each validation, print the weights of the first pair as a picture.");

  app_->option_defaults()->group("Options for the model");
  add_choice(
      *app_, "--architecture", model_.architecture,
      {{"transformer", train::Architecture::kTransformer}, {"gru", train::Architecture::kGru}},
      "transformer (the default), or gru: recurrent layers with additive attention (Bahdanau "
      "et al. 2015).")
      ->type_name("NAME");
  const auto size = [&](const char* name, std::int64_t& target, const char* what) {
    add_integer(*app_, name, target, {std::int64_t{1}, kMaxWidth},
                fmt::format("{} (default {}).", what, target));
  };
  size("--width", model_.width, "The embedding dimension");
  size("--heads", model_.heads, "The transformer's head count, a divisor of the width");
  size("--inner", model_.inner, "The inner dimension of the transformer's feed-forward blocks");
  size("--layers", layers_,
       "The number of layers in each of the transformer's encoder and decoder");
  add_real(*app_, "--rotary-base", rotary_base_,
           fmt::format("The base of the rotary embeddings in the transformer's self-attention; 0: "
                       "no rotary embeddings (default {}).",
                       model_.rotary_base))
      ->type_name("B");
  add_real(*app_, "--dropout", dropout_,
           fmt::format("The dropout probability (default {}).", model_.dropout))
      ->type_name("P");

  app_->option_defaults()->group("Options for the run");
  const auto count = [&](const char* name, std::int64_t& target, std::int64_t least,
                         const char* what) {
    add_integer(*app_, name, target, {least, kMaxCount},
                fmt::format("{} (default {}).", what, target));
  };
  count("--steps", run.steps, 1, "The maximum number of steps");
  count("--batch", run.batch, 1, "The number of pairs per step");
  add_real(*app_, "--learning-rate", learning_rate_,
           fmt::format("The peak learning rate, after a linear warmup and before a cosine decay to "
                       "0 (default {}).",
                       run.learning_rate))
      ->type_name("R");
  count("--warmup", run.warmup, 0, "The number of warmup steps");
  add_real(*app_, "--label-smoothing", label_smoothing_,
           fmt::format("The target probability spread over all characters (default {}).",
                       run.label_smoothing))
      ->type_name("P");
  count("--validate-every", run.validate_every, 1,
        "The number of steps between validations and checkpoints");
  count("--patience", run.patience, 0,
        "End after this number of validations without an improvement; 0: never");
  add_real(*app_, "--until", until_,
           "End when this share of validation pairs is translated exactly, such as 0.99.")
      ->type_name("SHARE");
  add_integer(*app_, "--seed", model_.seed,
              {std::uint64_t{0}, std::uint64_t{std::numeric_limits<std::uint32_t>::max()}},
              "The seed of the random numbers (default 0).");
  add_integer(
      *app_, "--threads", settings_.threads, {std::int64_t{1}, kMaxThreads},
      "The maximum number of threads. Default: one for a small model; else OMP_NUM_THREADS, or "
      "one per CPU.");
  app_->option_defaults()->group("Options");
}

void TrainTranslateCommand::check_usage() const {
  if (output_.empty()) throw UsageError("expected --output DIR");
  if (resume_) {
    for (const char* const option : kOfNewRuns) {
      if (given(option)) {
        throw UsageError(fmt::format(
            "{} goes with a new run; --resume goes on with {} as it was begun", option, output_));
      }
    }
    return;
  }
  if (settings_.data.empty()) throw UsageError("expected --data FILE, or --resume");
  const auto share = [](const char* name, const std::optional<double>& number) {
    if (number && !(*number >= 0.0 && *number < 1.0)) {
      throw UsageError(fmt::format("{}: expected a share in [0, 1), got {}", name, *number));
    }
  };
  share("--dropout", dropout_);
  share("--label-smoothing", label_smoothing_);
  if (rotary_base_ &&
      !(*rotary_base_ == 0.0 || (*rotary_base_ > 1.0 && std::isfinite(*rotary_base_)))) {
    throw UsageError(
        fmt::format("--rotary-base: expected a number above 1, or 0, got {}", *rotary_base_));
  }
  if (until_ && !(*until_ > 0.0 && *until_ <= 1.0)) {
    throw UsageError(fmt::format("--until: expected a share in (0, 1], got {}", *until_));
  }
  if (learning_rate_ && !(*learning_rate_ > 0.0 && std::isfinite(*learning_rate_))) {
    throw UsageError(
        fmt::format("--learning-rate: expected a number above 0, got {}", *learning_rate_));
  }
  if (model_.architecture == train::Architecture::kGru) {
    for (const char* const option : {"--heads", "--inner", "--layers", "--rotary-base"}) {
      if (given(option)) throw UsageError(fmt::format("{} goes with the transformer", option));
    }
  }
}

int TrainTranslateCommand::run() const {
  check_usage();
  static_cast<void>(build_info());  // throws for an invalid FOVEA_TARGET, before a folder is begun
  train::RunSettings settings = settings_;
  const train::RunFolder folder(output_);
  train::Model model;
  if (resume_) {
    if (!folder.has_checkpoint()) {
      fail("{}: there is no checkpoint to go on from", output_);
    }
    settings = folder.read_settings();
    model = folder.read_model();
  } else if (folder.has_checkpoint()) {
    fail("{}: there is a run already; --resume goes on with it, or name another folder", output_);
  }
  const train::TrainingData data = read_data(settings);
  if (!resume_) {
    train::TrainerOptions& trainer = settings.trainer;
    trainer.learning_rate = learning_rate_.value_or(trainer.learning_rate);
    trainer.label_smoothing = label_smoothing_.value_or(trainer.label_smoothing);
    trainer.until = until_.value_or(trainer.until);
    model.source = vocabulary(data, settings, &train::Pair::source);
    model.target = vocabulary(data, settings, &train::Pair::target);
    model.options = model_;
    model.options.source_symbols = model.source.size();
    model.options.target_symbols = model.target.size();
    model.options.encoder_layers = model.options.decoder_layers = layers_;
    model.options.rotary_base = rotary_base_.value_or(model_.rotary_base);
    model.options.dropout = dropout_.value_or(model_.dropout);
    model.options.max_length = max_length(data);
    model.translator = train::make_translator(model.options);
  }

  if (settings.threads == 0) settings.threads = useful_threads(model, data, settings.trainer);
  omp_set_num_threads(static_cast<int>(settings.threads));
  train::Trainer trainer(folder, model, data, settings, resume_);
  if (trainer.state().best_step > 0) {  // the best model is there, and may be the final one
    folder.load_best(*folder.read_model().translator);
  }
  const std::string resumed =
      resume_ ? fmt::format("; resumed at step {}", trainer.state().steps) : std::string();
  write_stdout(
      fmt::format("{}, {} parameters; {} pairs to learn from, {} to validate with{}\n\n"
                  "    step      loss     exact   chrF2   aligned      time\n",
                  train::architecture_name(model.options.architecture),
                  model.translator->model().parameters().count(), data.training.size(),
                  data.validation.size(), resumed));

  const DelayedInterrupt interrupt;
  TrainLine line(settings.trainer.steps);
  std::vector<train::Figure> figures;
  if (resume_) {
    figures = train::figures_of_html(folder.read_page(kAttentionPage));
    std::erase_if(figures, [&](const train::Figure& figure) {
      return figure.number > trainer.state().steps;
    });
  }
  trainer.on_step = [&](const train::StepReport& report) {
    line.show(report);
    return interrupt.signal() == 0;
  };
  trainer.on_validation = [&](const train::Validation& found) {
    line.clear();
    std::string text = validation_line(found, line);
    const train::Picture picture{found.steps,
                                 fmt::format("After {} steps: {}", found.steps, found.texts[0]),
                                 data.validation[0].source, found.texts[0], found.first->weights};
    figures.push_back(train::picture_as_figure(picture));
    if (show_attention_) text += "\n" + train::picture_as_text(picture) + "\n";
    write_stdout(text);
    folder.save_page(
        kAttentionPage,
        train::figures_as_html("Where it looks in “" + data.validation[0].source + "”", figures));
  };
  const train::TrainEnd end = trainer.run();
  line.clear();
  const train::RunState& state = trainer.state();
  std::string text = "\n";
  switch (end) {
    case train::TrainEnd::kStopped:
      text +=
          fmt::format("Ended at step {}, and saved: --resume goes on from there.\n", state.steps);
      break;
    case train::TrainEnd::kUntil:
      text += fmt::format("Ended at step {}: --until is reached.\n", state.steps);
      break;
    case train::TrainEnd::kPatience:
      text +=
          fmt::format("Ended at step {}: no better validation for {}.\n", state.steps, state.worse);
      break;
    case train::TrainEnd::kOutOfSteps:
      text += fmt::format("Ended after {}.\n", counted(state.steps, "step"));
      break;
  }
  if (state.best_step > 0) {
    text += fmt::format("The model of step {} is in {}: fovea translate {} TEXT\n", state.best_step,
                        output_, output_);
  }
  write_stdout(text);
  return end == train::TrainEnd::kStopped ? kInterrupted + interrupt.signal() : 0;
}

}  // namespace

std::unique_ptr<Command> make_train_translate(CLI::App& parent) {
  return std::make_unique<TrainTranslateCommand>(parent);
}

}  // namespace fovea::cli
