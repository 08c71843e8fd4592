// SPDX-License-Identifier: Apache-2.0
//
// Extreme and non-finite values, and a tolerance for a few roundings.

#pragma once

#include <cstdint>
#include <limits>

namespace fovea::test {

inline constexpr std::int64_t kMaxInt = std::numeric_limits<std::int64_t>::max();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
/// A few dozen roundings of float64 numbers near 1.
inline constexpr double kTight = 1e-13;

}  // namespace fovea::test
