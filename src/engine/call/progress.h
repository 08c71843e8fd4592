// SPDX-License-Identifier: Apache-2.0
//
// The progress of calls that consist of several passes.

#pragma once

#include <cstdint>

#include "fovea/execution.h"

namespace fovea::engine {

/// Reports the progress of several passes as that of one call.
class JoinedProgress {
 public:
  /// `whole` are the settings of the call, which must outlive this object.
  explicit JoinedProgress(const Execution& whole) : whole_(whole), pass_(whole) {}
  JoinedProgress(const JoinedProgress&) = delete;
  JoinedProgress& operator=(const JoinedProgress&) = delete;

  /// Returns the settings of the next pass, valid during the lifetime of this object. `later` is
  /// the number of items of the passes after it.
  const Execution& next(std::int64_t later) {
    if (!whole_.progress) return whole_;
    before_ += items_;
    items_ = 0;
    pass_.progress = [this, later](std::int64_t done, std::int64_t items) {
      items_ = items;
      if (before_ > 0 && done == 0) return;  // as after the last item of the pass before
      whole_.progress(before_ + done, before_ + items + later);
    };
    return pass_;
  }

 private:
  const Execution& whole_;
  Execution pass_;
  std::int64_t before_ = 0;  // items of earlier passes
  std::int64_t items_ = 0;   // of the current one
};

}  // namespace fovea::engine
