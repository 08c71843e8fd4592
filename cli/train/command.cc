// SPDX-License-Identifier: Apache-2.0
//
// `fovea train` (train_command.h).

#include "cli/train/command.h"

#include "fovea/nn/signal_stack.h"

#include "cli/shell/help.h"
#include "cli/shell/message.h"
#include "cli/train/scene.h"
#include "cli/train/translation.h"

namespace fovea::cli {
namespace {

Page train_page() {
  return {
      .synopsis = {"fovea train COMMAND [ARGUMENT]...", "fovea train COMMAND --help"},
      .description =
          "Attention does what its weights make it do, and weights can be learned. Each command "
          "learns those of one kind of problem.",
      .sections = {exit_status_section(),
                   {"EXAMPLES",
                    " fovea train scene lesson.json --output learned.json\n"
                    " fovea train translate --data pairs.tsv --output run"},
                   {"SEE ALSO",
                    "fovea --help, fovea train scene --help, fovea train translate --help, fovea "
                    "translate --help; docs/training.md"}}};
}

}  // namespace

TrainCommand::TrainCommand(CLI::App& parent)
    : app_(parent.add_subcommand("train", "learn weights of attention")) {
  app_->formatter(std::make_shared<PageFormatter>(train_page()));
  app_->require_subcommand(0, 1);
  app_->set_help_flag("-h,--help", "Print this page and exit.");
  scene_ = std::make_unique<TrainSceneCommand>(*app_);
  translate_ = std::make_unique<TrainTranslateCommand>(*app_);
}

TrainCommand::~TrainCommand() = default;

int TrainCommand::run() const {
  nn::use_signal_stack();  // for a DelayedInterrupt
  if (scene_->chosen()) return scene_->run();
  if (translate_->chosen()) return translate_->run();
  throw UsageError("expected what to train: scene or translate");
}

}  // namespace fovea::cli
