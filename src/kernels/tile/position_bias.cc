// SPDX-License-Identifier: Apache-2.0
//
// Tables of position biases (position_bias.h).

#include "kernels/tile/position_bias.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace fovea::kernels {
namespace {

/// Returns the last distance in [distance, last] in the same bucket. The distances of a bucket are
/// contiguous, so binary search finds its end.
std::int64_t bucket_end(std::int64_t distance, std::int64_t last, std::int64_t bucket,
                        const RelativeTable& relative) {
  // All large distances share one bucket, and binary search skips such long runs quickly.
  while (distance < last) {
    const std::int64_t middle = distance + (last - distance + 1) / 2;
    if (relative_bucket(-middle, relative) == bucket) {
      distance = middle;
    } else {
      last = middle - 1;
    }
  }
  return distance;
}

/// Returns the slope of one head: the default slope if `alibi` has no slopes.
double alibi_slope(const Alibi& alibi, std::int64_t head, std::int64_t q_heads) {
  return alibi.slopes.empty() ? default_alibi_slope(head, q_heads)
                              : alibi.slopes[static_cast<std::size_t>(head)];
}

}  // namespace

void fill_position_bias(const ScoreOptions& score, std::int64_t head, std::int64_t q_heads,
                        std::int64_t first_distance, std::span<float> by_distance) {
  constexpr double kLog2E = std::numbers::log2e_v<double>;
  const auto count = static_cast<std::int64_t>(by_distance.size());
  const auto at = [&](std::int64_t distance) -> float& {
    return by_distance[static_cast<std::size_t>(distance - first_distance)];
  };
  const double slope = score.alibi ? -kLog2E * alibi_slope(*score.alibi, head, q_heads) : 0.0;
  // Runs with a 32-bit index, because every CPU converts int32 to double with a vector instruction.
  constexpr std::int64_t kRun = 1024;
  for (std::int64_t begin = 0; begin < count; begin += kRun) {
    const auto distance = static_cast<double>(first_distance + begin);
    const auto run = static_cast<int>(std::min(kRun, count - begin));
    float* const to = by_distance.data() + begin;
    for (int i = 0; i < run; ++i) to[i] = static_cast<float>(slope * std::abs(distance + i));
  }
  if (!score.relative) return;
  const RelativeTable& relative = *score.relative;
  for (std::int64_t distance = first_distance; distance < first_distance + count;) {
    const std::int64_t bucket = relative_bucket(-distance, relative);
    const std::int64_t last = bucket_end(distance, first_distance + count - 1, bucket, relative);
    const double bias = kLog2E * relative.table->value({bucket, head});
    for (; distance <= last; ++distance) {
      float& total = at(distance);
      // A bias of -inf masks the key, whatever its ALiBi bias.
      if (bias == -std::numeric_limits<double>::infinity()) {
        total = static_cast<float>(bias);
      } else {
        total = static_cast<float>(static_cast<double>(total) + bias);
      }
    }
  }
}

}  // namespace fovea::kernels
