// SPDX-License-Identifier: Apache-2.0
//
// Measures the durations that commands report.

#pragma once

#include <chrono>

namespace fovea::cli {

/// Starts when it is constructed.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace fovea::cli
