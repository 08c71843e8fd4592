// SPDX-License-Identifier: Apache-2.0
//
// `fovea heads`: classifies heads by where they attend.

#pragma once

#include <memory>

#include "cli/shell/command.h"

namespace fovea::cli {

std::unique_ptr<Command> make_heads(CLI::App& parent);

}  // namespace fovea::cli
