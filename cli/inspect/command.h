// SPDX-License-Identifier: Apache-2.0
//
// `fovea inspect`: which tensors a file has, and what their numbers are like.

#pragma once

#include <memory>

#include "cli/shell/command.h"

namespace fovea::cli {

std::unique_ptr<Command> make_inspect(CLI::App& parent);

}  // namespace fovea::cli
