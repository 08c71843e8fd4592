// SPDX-License-Identifier: Apache-2.0
//
// Tables of the biases that depend only on the distance of query and key (ALiBi, relative table).

#pragma once

#include <cstdint>
#include <span>

#include "fovea/attention_options.h"

namespace fovea::kernels {

/// Computes by_distance[i] = log2(e) times the sum of the position biases of head `head` of q_heads
/// heads at the distance first_distance + i. The distance is the query's position minus the key's.
/// Uses double precision, and rounds to float after each kind of bias is added.
void fill_position_bias(const ScoreOptions& score, std::int64_t head, std::int64_t q_heads,
                        std::int64_t first_distance, std::span<float> by_distance);

}  // namespace fovea::kernels
