// SPDX-License-Identifier: Apache-2.0
//
// `fovea map`: the weights of one head, or of all together, as a picture, and what is told of their
// rows; `fovea tile`: one rectangle of the weights of a head, as numbers.

#pragma once

#include <memory>

#include "cli/shell/command.h"

namespace fovea::cli {

std::unique_ptr<Command> make_map(CLI::App& parent);
std::unique_ptr<Command> make_tile(CLI::App& parent);

}  // namespace fovea::cli
