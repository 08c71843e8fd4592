// SPDX-License-Identifier: Apache-2.0
//
// `fovea view`: serves the viewer to a browser on this machine.

#pragma once

#include <memory>

#include "cli/shell/command.h"

namespace fovea::cli {

std::unique_ptr<Command> make_view(CLI::App& parent);

}  // namespace fovea::cli
