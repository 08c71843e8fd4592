// SPDX-License-Identifier: Apache-2.0
//
// `fovea record`: writes a recording of tensors in files.

#pragma once

#include <memory>

#include "cli/shell/command.h"

namespace fovea::cli {

std::unique_ptr<Command> make_record(CLI::App& parent);

}  // namespace fovea::cli
