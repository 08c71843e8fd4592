// SPDX-License-Identifier: Apache-2.0
//
// `fovea explain`: the story of a scene or a sentence, or the check of what a scene expects. The
// library tells it (fovea/scene.h); this reads the arguments and puts the result where it belongs.

#pragma once

#include <memory>

#include "cli/shell/command.h"

namespace fovea::cli {

std::unique_ptr<Command> make_explain(CLI::App& parent);

}  // namespace fovea::cli
