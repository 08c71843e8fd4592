// SPDX-License-Identifier: Apache-2.0
//
// `fovea rollout`: the tokens from which the information at one token comes, through all layers.

#pragma once

#include <memory>

#include "cli/shell/command.h"

namespace fovea::cli {

std::unique_ptr<Command> make_rollout(CLI::App& parent);

}  // namespace fovea::cli
