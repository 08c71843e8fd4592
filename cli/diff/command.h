// SPDX-License-Identifier: Apache-2.0
//
// `fovea diff`: the heads that differ most between two recordings of the same tokens.

#pragma once

#include <memory>

#include "cli/shell/command.h"

namespace fovea::cli {

std::unique_ptr<Command> make_diff(CLI::App& parent);

}  // namespace fovea::cli
