// SPDX-License-Identifier: Apache-2.0
//
// The output of `fovea inspect` for a recording, as text or JSON.

#pragma once

#include <string>

#include "fovea/recording.h"

namespace fovea::cli {

std::string recording_text(const Recording& recording);
std::string recording_json(const Recording& recording);

}  // namespace fovea::cli
