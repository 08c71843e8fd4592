// SPDX-License-Identifier: Apache-2.0
//
// `fovea map`: renders the weights of one head, or of all heads together, with per-query
// statistics. `fovea tile`: prints a rectangle of the weights of one head.

#pragma once

#include <memory>

#include "cli/shell/command.h"

namespace fovea::cli {

std::unique_ptr<Command> make_map(CLI::App& parent);
std::unique_ptr<Command> make_tile(CLI::App& parent);

}  // namespace fovea::cli
