// SPDX-License-Identifier: Apache-2.0
//
// Progress of a call of the engine: share done, speed and time left.

#pragma once

#include <cstdint>

#include "cli/shell/progress.h"
#include "cli/shell/stopwatch.h"

namespace fovea::cli {

/// A callback that shows the progress at intervals, once the call has taken half a second.
class CallProgress {
 public:
  /// `flop` is the flop count of the whole call.
  CallProgress(Progress& line, double flop) : line_(line), flop_(flop) {}

  void operator()(std::int64_t done, std::int64_t total);

 private:
  Progress& line_;
  double flop_;
  Stopwatch watch_;
  double shown_ = 0.0;
};

}  // namespace fovea::cli
