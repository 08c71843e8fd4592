// SPDX-License-Identifier: Apache-2.0
//
// Comparison and printing of what masks return.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ostream>

#include "fovea/mask.h"

namespace fovea {

// Lets gtest print these types.
inline void PrintTo(const Visibility& visibility, std::ostream* out) {
  *out << std::array{"none", "all", "some"}[static_cast<std::size_t>(visibility)];
}
inline bool operator==(const KeyRange& a, const KeyRange& b) {
  return a.begin == b.begin && a.end == b.end && a.exact == b.exact;
}
inline void PrintTo(const KeyRange& range, std::ostream* out) {
  *out << "[" << range.begin << ", " << range.end << ")" << (range.exact ? ", exact" : "");
}

namespace test {

inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

}  // namespace test
}  // namespace fovea
