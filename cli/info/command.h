// SPDX-License-Identifier: Apache-2.0
//
// `fovea info`: shows the build, the CPU's SIMD targets and the choices made.

#pragma once

#include <memory>

#include "cli/shell/command.h"

namespace fovea::cli {

std::unique_ptr<Command> make_info(CLI::App& parent);

}  // namespace fovea::cli
