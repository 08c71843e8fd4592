// SPDX-License-Identifier: Apache-2.0
//
// `fovea train` (command.h).

#include "cli/train/command.h"

#include "fovea/nn/signal_stack.h"

#include "cli/shell/message.h"

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

class TrainCommand : public CommandGroup {
 public:
  explicit TrainCommand(CLI::App& parent)
      : CommandGroup(parent, "train", "learn weights of attention", train_page(),
                     Repeated::kRefused) {
    add_commands({make_train_scene, make_train_translate});
  }

  int run() const override {
    nn::use_signal_stack();  // for a DelayedInterrupt
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
