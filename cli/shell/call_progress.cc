// SPDX-License-Identifier: Apache-2.0
//
// Progress of a call (call_progress.h).

#include "cli/shell/call_progress.h"

#include <cmath>
#include <string>

#include <fmt/format.h>

namespace fovea::cli {
namespace {

/// Returns the time left as "12 s", "3 min 20 s" or "2 h 5 min".
std::string left_text(double seconds) {
  constexpr double kLongest = 360000.0;
  if (!(seconds < kLongest)) return "days";
  const auto whole = static_cast<std::int64_t>(std::ceil(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

}  // namespace

void CallProgress::operator()(std::int64_t done, std::int64_t total) {
  constexpr double kPatience = 0.5;
  constexpr double kInterval = 0.1;
  const double seconds = watch_.seconds();
  if (seconds < kPatience || seconds < shown_ + kInterval || done == 0) return;
  shown_ = seconds;
  const double share = static_cast<double>(done) / static_cast<double>(total);
  line_.show(fmt::format("{:.0f} %, {:.1f} GFLOP/s, {} left", share * 100.0,
                         flop_ * share / seconds * 1e-9, left_text(seconds / share - seconds)));
}

}  // namespace fovea::cli
