// SPDX-License-Identifier: Apache-2.0
//
// Functions that throw InvalidArgument with a formatted message.

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

/// Throws InvalidArgument for an error that is not about one particular argument.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw InvalidArgument(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws InvalidArgument with the message "place: message". `place` is usually a file name.
[[noreturn]] inline void fail_at(std::string_view place, std::string_view message) {
  fail("{}: {}", place, message);
}

}  // namespace fovea
