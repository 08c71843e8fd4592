// SPDX-License-Identifier: Apache-2.0
//
// `fovea attend`: computes attention of tensors in files.

#pragma once

#include <memory>

#include "cli/shell/command.h"

namespace fovea::cli {

std::unique_ptr<Command> make_attend(CLI::App& parent);

}  // namespace fovea::cli
