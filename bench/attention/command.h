// SPDX-License-Identifier: Apache-2.0
//
// `fovea bench`: this machine's ceilings, and how near to them attention comes.

#pragma once

#include <memory>

#include "cli/shell/command.h"

namespace fovea::cli {

std::unique_ptr<Command> make_bench(CLI::App& parent);

}  // namespace fovea::cli
