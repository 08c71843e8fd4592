// SPDX-License-Identifier: Apache-2.0
//
// How checks end that found a caller's mistake.

#pragma once

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "fovea/error.h"

namespace fovea {

/// Throws InvalidArgument, which names the argument, what was expected and what came.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw InvalidArgument(fmt::format(format, std::forward<Args>(args)...));
}

/// The same about what `place` names, mostly a file.
[[noreturn]] inline void fail_at(std::string_view place, std::string_view message) {
  fail("{}: {}", place, message);
}

}  // namespace fovea
