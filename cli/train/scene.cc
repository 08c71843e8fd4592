// SPDX-License-Identifier: Apache-2.0
//
// `fovea train scene` (command.h).

#include "fovea/scene.h"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "fovea/error.h"
#include "fovea/train_scene.h"

#include "cli/explain/input.h"
#include "cli/pages/pages.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/interrupt.h"
#include "cli/shell/message.h"
#include "cli/shell/option_types.h"
#include "cli/shell/output.h"
#include "cli/shell/progress.h"
#include "cli/train/command.h"
#include "cli/train/scene_report.h"
#include "core/fail.h"

namespace fovea::cli {
namespace {

constexpr std::int64_t kMaxSteps = 1'000'000;

/// Shows the progress of learning on a terminal, at intervals.
class LearnLine {
 public:
  explicit LearnLine(const scene::Scene& scene, std::int64_t steps)
      : wishes_(scene.learn.size()), steps_(steps) {}

  void show(const train::LearnProgress& at) {
    constexpr std::chrono::milliseconds kPause(100);
    const auto now = std::chrono::steady_clock::now();
    if (now - shown_ < kPause) return;
    shown_ = now;
    line_.show(fmt::format("step {} of {}, loss {:.4g}, {} of {} wishes met", at.steps, steps_,
                           at.loss, at.met, wishes_));
  }

 private:
  Progress line_;
  std::size_t wishes_;
  std::int64_t steps_;
  std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

class TrainSceneCommand : public Command {
 public:
  explicit TrainSceneCommand(CLI::App& parent);
  int run() const override;

 private:
  /// Throws UsageError for incompatible arguments.
  void check_usage() const;
  std::string name() const { return scene_ == "-" ? "standard input" : scene_; }
  scene::Scene load() const;

  std::string scene_;
  std::string output_;
  std::int64_t steps_;
  std::optional<double> learning_rate_;
  std::uint64_t seed_ = 0;
  bool json_ = false;
};

TrainSceneCommand::TrainSceneCommand(CLI::App& parent)
    : Command(parent, "scene", "learn a scene's weights from wishes for them", kTrainScenePage),
      steps_(train::LearnOptions().steps) {
  app_->add_option("SCENE", scene_, "A scene file with \"learn\", or \"-\" for standard input.");
  app_->add_option("--output", output_, "Write the scene with the learned weights to FILE.")
      ->type_name("FILE");
  add_integer(*app_, "--steps", steps_, {std::int64_t{1}, kMaxSteps},
              fmt::format("The maximum number of steps (default {}).", steps_));
  add_real(*app_, "--learning-rate", learning_rate_,
           fmt::format("The learning rate (default {}).", train::LearnOptions().learning_rate))
      ->type_name("R");
  add_integer(*app_, "--seed", seed_,
              {std::uint64_t{0}, std::uint64_t{std::numeric_limits<std::uint32_t>::max()}},
              "Add small random numbers with this seed to the initial weights. Default: start from "
              "the scene's weights.");
  app_->add_flag("--json", json_, "Print one JSON object instead of text.");
}

void TrainSceneCommand::check_usage() const {
  if (!given("SCENE")) throw UsageError("expected a SCENE file");
  if (scene_.empty()) throw UsageError("SCENE: expected a file name, got \"\"");
  if (given("--output")) require_file_name("--output", output_);
  if (learning_rate_ && !(*learning_rate_ > 0.0 && std::isfinite(*learning_rate_))) {
    throw UsageError(
        fmt::format("--learning-rate: expected a number above 0, got {}", *learning_rate_));
  }
  std::error_code missing;  // if either file is missing, they are different
  if (given("--output") && std::filesystem::equivalent(scene_, output_, missing)) {
    throw UsageError(fmt::format("--output: {} is the scene itself; name another file", output_));
  }
}

scene::Scene TrainSceneCommand::load() const {
  scene::Scene scene = scene_ == "-" ? load_scene_from_stdin() : scene::load_scene(scene_);
  if (scene.learn.empty()) {
    fail("{}: nothing to learn: the scene has no \"learn\"", name());
  }
  return scene;
}

int TrainSceneCommand::run() const {
  check_usage();
  const scene::Scene scene = load();
  train::LearnOptions options{.steps = steps_};
  if (learning_rate_) options.learning_rate = *learning_rate_;
  if (given("--seed")) options.seed = seed_;

  train::Learned learned;
  int signal = 0;
  try {
    const DelayedInterrupt interrupt;
    LearnLine line(scene, steps_);
    options.progress = [&](const train::LearnProgress& at) {
      line.show(at);
      return interrupt.signal() == 0;
    };
    learned = train::learn_scene(scene, options);
    signal = interrupt.signal();
  } catch (const InvalidArgument& error) {
    fail("{}: {}", name(), error.what());
  }
  if (learned.end == train::LearnEnd::kNotFinite) {
    throw std::runtime_error(
        learned.steps == 0
            ? fmt::format("{}: the weights that learning begins with are not finite", name())
            : fmt::format("{}: what was learned is not finite after step {}, and nothing is "
                          "written; a --learning-rate below {} may help",
                          name(), learned.steps, options.learning_rate));
  }

  if (given("--output")) write_file(output_, learned.scene.json);
  const LearnReport report{scene, learned, steps_, output_};
  write_stdout(json_ ? learn_json(report) : learn_text(report));
  if (signal != 0) return kInterrupted + signal;
  return learned.end == train::LearnEnd::kReached ? 0 : 1;
}

}  // namespace

std::unique_ptr<Command> make_train_scene(CLI::App& parent) {
  return std::make_unique<TrainSceneCommand>(parent);
}

}  // namespace fovea::cli
