// SPDX-License-Identifier: Apache-2.0
//
// Quantities in words: times and shares, with as many digits as they are good for.

#pragma once

#include <string>

namespace fovea::cli {

/// "81.2 ms", "812 us", "1.25 s": three digits, more where there are many seconds.
std::string time_text(double seconds);

/// 0.876 is "87.6 %".
std::string percent_text(double share);

}  // namespace fovea::cli
