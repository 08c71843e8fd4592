// SPDX-License-Identifier: Apache-2.0
//
// How far a call of the engine is, with its speed and the time that is left.

#pragma once

#include <chrono>
#include <cstdint>

#include "cli/shell/progress.h"

namespace fovea::cli {

/// Says it once the call takes long, and not at every item.
class CallProgress {
 public:
  /// `flop`: of the whole call.
  CallProgress(Progress& line, double flop) : line_(line), flop_(flop) {}

  void operator()(std::int64_t done, std::int64_t total);

 private:
  Progress& line_;
  double flop_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double shown_ = 0.0;
};

}  // namespace fovea::cli
