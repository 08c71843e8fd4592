// SPDX-License-Identifier: Apache-2.0
//
// `fovea explain`: explains a scene or a sentence, or checks a scene's expected numbers. The
// library (fovea/scene.h) creates the text; the command parses the arguments and writes the result.

#pragma once

#include <memory>

#include "cli/shell/command.h"

namespace fovea::cli {

std::unique_ptr<Command> make_explain(CLI::App& parent);

}  // namespace fovea::cli
