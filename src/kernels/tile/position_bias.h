// SPDX-License-Identifier: Apache-2.0
//
// Tables of the biases that depend only on the distance of query and key (ALiBi, relative table),
// and the conversion of dense biases to float32.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "fovea/attention_options.h"

namespace fovea::kernels {

/// Computes by_distance[i] = log2(e) times the sum of the position biases of head `head` of q_heads
/// heads at the distance first_distance + i. The distance is the query's position minus the key's.
/// Uses double precision, and rounds to float after each kind of bias is added.
void fill_position_bias(const ScoreOptions& score, std::int64_t head, std::int64_t q_heads,
                        std::int64_t first_distance, std::span<float> by_distance);

/// Returns a number of a dense bias as float32. Only -inf masks, so finite numbers stay finite.
template <class T>
float bias_number(T number) {
  if constexpr (std::is_same_v<T, double>) {
    constexpr double kMost = std::numeric_limits<float>::max();
    if (std::isfinite(number)) number = std::clamp(number, -kMost, kMost);
  }
  return static_cast<float>(number);
}

}  // namespace fovea::kernels
