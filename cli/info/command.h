// SPDX-License-Identifier: Apache-2.0
//
// `fovea info`: what this build is and what it found on this machine.

#pragma once

#include <memory>

#include "cli/shell/command.h"

namespace fovea::cli {

std::unique_ptr<Command> make_info(CLI::App& parent);

}  // namespace fovea::cli
