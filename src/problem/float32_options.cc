// SPDX-License-Identifier: Apache-2.0
//
// Limits of options in float32 (float32_options.h).

#include "problem/float32_options.h"

#include <cmath>
#include <numbers>

#include "core/fail.h"
#include "problem/query_factor.h"

namespace fovea {

void check_float32(const ScoreOptions& score, double scale) {
  const auto holds = [](double number) {
    return std::isfinite(static_cast<float>(number * std::numbers::log2e_v<double>));
  };
  if (score.scale && !holds(*score.scale)) {
    fail_argument("scale", "expected a number that float32 holds, got {}", *score.scale);
  }
  if (score.softcap > 0.0) {
    if (!holds(score.softcap) || static_cast<float>(score.softcap) == 0.0f) {
      fail_argument("softcap", "expected a number that float32 holds, got {}", score.softcap);
    }
    if (!std::isfinite(query_factor(score, scale))) {
      fail_argument("softcap",
                    "expected scale / softcap to be a number that float32 holds, got "
                    "scale {} and softcap {}",
                    scale, score.softcap);
    }
  }
  if (score.alibi) {
    for (const double slope : score.alibi->slopes) {
      if (!holds(slope)) {
        fail_argument("alibi", "expected numbers that float32 holds, got {}", slope);
      }
    }
  }
  for (const double sink : score.sinks) {
    if (!holds(sink) && !std::isinf(sink)) {
      fail_argument("sinks", "expected numbers that float32 holds, got {}", sink);
    }
  }
}

}  // namespace fovea
