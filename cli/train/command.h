// SPDX-License-Identifier: Apache-2.0
//
// `fovea train` with its subcommands, and `fovea translate`, which uses a trained model. absent.cc
// replaces both in a build without fovea::nn.

#pragma once

#include <memory>

#include "cli/shell/command.h"

namespace fovea::cli {

std::unique_ptr<Command> make_train(CLI::App& parent);
std::unique_ptr<Command> make_translate(CLI::App& parent);

/// Add the subcommands of `fovea train`.
std::unique_ptr<Command> make_train_scene(CLI::App& train);
std::unique_ptr<Command> make_train_translate(CLI::App& train);

}  // namespace fovea::cli
