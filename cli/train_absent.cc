// SPDX-License-Identifier: Apache-2.0
//
// `fovea train` in a build without fovea::nn: it says so, whatever follows.

#include "fovea/error.h"

#include "train_command.h"
#include "train_scene_command.h"

namespace fovea::cli {

TrainCommand::TrainCommand(CLI::App& parent)
    : app_(parent.add_subcommand("train", "learn weights of attention (not in this build)")) {
  app_->prefix_command();
  app_->set_help_flag();
  app_->parse_complete_callback([] {
    throw InvalidArgument("train: this fovea was built without what learns, with FOVEA_NN=OFF");
  });
}

TrainCommand::~TrainCommand() = default;

int TrainCommand::run() const { return 0; }  // never reached

}  // namespace fovea::cli
