// SPDX-License-Identifier: Apache-2.0
//
// `fovea train` (command.h).

#include "cli/train/command.h"

#include "fovea/nn/signal_stack.h"

#include "cli/pages/pages.h"
#include "cli/shell/message.h"

namespace fovea::cli {
namespace {

class TrainCommand : public CommandGroup {
 public:
  explicit TrainCommand(CLI::App& parent)
      : CommandGroup(parent, "train", "learn attention weights", kTrainPage, Repeated::kRefused) {
    add_commands({make_train_scene, make_train_translate});
  }

  int run() const override {
    nn::use_signal_stack();  // required by DelayedInterrupt
    return CommandGroup::run();
  }

 private:
  int run_alone() const override { throw UsageError("expected what to train: scene or translate"); }
};

}  // namespace

std::unique_ptr<Command> make_train(CLI::App& parent) {
  return std::make_unique<TrainCommand>(parent);
}

}  // namespace fovea::cli
