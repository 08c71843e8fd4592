// SPDX-License-Identifier: Apache-2.0
//
// What a recording has, in words for messages.

#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "fovea/recording.h"

namespace fovea::recording {

/// Returns numbers as ranges: "0 to 5, 8, 10 to 29".
std::string ranges_words(const std::set<std::int64_t>& numbers);

/// Returns what a recording has, for messages: "layers 0 to 29", or "layers 0 to 5 of encoder,
/// decoder and cross".
std::string recorded_words(const Recording& recording);

}  // namespace fovea::recording
