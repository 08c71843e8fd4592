// SPDX-License-Identifier: Apache-2.0
//
// `fovea train` and `fovea translate` in a build without fovea::nn: they say so, whatever follows.

#include <string>

#include "fovea/error.h"

#include "cli/train/command.h"
#include "cli/train/scene.h"
#include "cli/train/translate.h"
#include "cli/train/translation.h"

namespace fovea::cli {
namespace {

CLI::App* absent(CLI::App& parent, const std::string& name, const std::string& what) {
  CLI::App* const app = parent.add_subcommand(name, what + " (not in this build)");
  app->prefix_command();
  app->set_help_flag();
  app->parse_complete_callback([name] {
    throw InvalidArgument(name + ": this fovea was built without what learns, with FOVEA_NN=OFF");
  });
  return app;
}

}  // namespace

// What runs is never reached.
TrainCommand::TrainCommand(CLI::App& parent)
    : app_(absent(parent, "train", "learn weights of attention")) {}
TrainCommand::~TrainCommand() = default;
int TrainCommand::run() const { return 0; }

TranslateCommand::TranslateCommand(CLI::App& parent)
    : app_(absent(parent, "translate", "translate with a model that was trained")) {}
int TranslateCommand::run() const { return 0; }

}  // namespace fovea::cli
