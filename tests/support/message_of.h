// SPDX-License-Identifier: Apache-2.0
//
// What a caller's mistake is told, to compare with what it should be.

#pragma once

#include <string>

#include "fovea/error.h"

namespace fovea::test {

/// The message of the InvalidArgument that `call` throws, or "no error".
std::string message_of(const auto& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace fovea::test
