// SPDX-License-Identifier: Apache-2.0
//
// How checks end that found a caller's mistake.

#pragma once

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "fovea/error.h"

namespace fovea {

/// Throws InvalidArgument about `argument`: "argument: expected ..., got ...".
template <class... Args>
[[noreturn]] void fail_argument(std::string_view argument, fmt::format_string<Args...> format,
                                Args&&... args) {
  throw InvalidArgument(argument, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws InvalidArgument about no argument alone.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw InvalidArgument(fmt::format(format, std::forward<Args>(args)...));
}

/// The same about what `place` names, mostly a file.
[[noreturn]] inline void fail_at(std::string_view place, std::string_view message) {
  fail("{}: {}", place, message);
}

}  // namespace fovea
