// SPDX-License-Identifier: Apache-2.0
//
// Captures error messages for comparison.

#pragma once

#include <string>

#include "fovea/error.h"

namespace fovea::test {

/// Returns the message of the InvalidArgument thrown by `call`, or "no error".
std::string message_of(const auto& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace fovea::test
