// SPDX-License-Identifier: Apache-2.0
//
// Formatting of times, counts and shares.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fovea::cli {

/// Returns "81.2 ms", "812 us" or "1.25 s": three significant digits, more for 10 s and above.
std::string time_text(double seconds);

/// Returns "1 thread" or "3 threads". If `plural` is empty, an "s" is appended.
std::string counted(std::int64_t number, std::string_view what, std::string_view plural = {});

/// Returns "87.6 %" for 0.876.
std::string percent_text(double share);

}  // namespace fovea::cli
