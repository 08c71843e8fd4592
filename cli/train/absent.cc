// SPDX-License-Identifier: Apache-2.0
//
// Placeholders for `fovea train` and `fovea translate` in a build without fovea::nn (command.h).

#include "cli/train/command.h"

namespace fovea::cli {
namespace {

std::unique_ptr<Command> make(CLI::App& parent, const std::string& name, const std::string& what) {
  return make_absent(parent, name, what + " (not in this build)",
                     name + ": this fovea was built without what learns, with FOVEA_NN=OFF");
}

}  // namespace

std::unique_ptr<Command> make_train(CLI::App& parent) {
  return make(parent, "train", "learn attention weights");
}

std::unique_ptr<Command> make_translate(CLI::App& parent) {
  return make(parent, "translate", "translate with a trained model");
}

}  // namespace fovea::cli
