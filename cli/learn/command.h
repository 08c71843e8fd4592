// SPDX-License-Identifier: Apache-2.0
//
// `fovea learn`: writes the lessons as pages, lists them and opens one in the browser.

#pragma once

#include <memory>

#include "cli/shell/command.h"

namespace fovea::cli {

std::unique_ptr<Command> make_learn(CLI::App& parent);

}  // namespace fovea::cli
