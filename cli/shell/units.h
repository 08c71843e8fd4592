// SPDX-License-Identifier: Apache-2.0
//
// Quantities in words: times and shares, with as many digits as they are good for.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fovea::cli {

/// "81.2 ms", "812 us", "1.25 s": three digits, more where there are many seconds.
std::string time_text(double seconds);

/// "1 thread", "3 threads". Without `plural`, an "s" makes it.
std::string counted(std::int64_t number, std::string_view what, std::string_view plural = {});

/// 0.876 is "87.6 %".
std::string percent_text(double share);

}  // namespace fovea::cli
