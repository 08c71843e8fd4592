// SPDX-License-Identifier: Apache-2.0
//
// `fovea inspect`: lists the tensors in a file, with ranges.

#pragma once

#include <memory>

#include "cli/shell/command.h"

namespace fovea::cli {

std::unique_ptr<Command> make_inspect(CLI::App& parent);

}  // namespace fovea::cli
