// SPDX-License-Identifier: Apache-2.0
//
// Biases that depend on the distance of query and key alone (ALiBi, relative table), as a table.

#pragma once

#include <cstdint>
#include <span>

#include "fovea/attention_options.h"

namespace fovea::kernels {

/// by_distance[i] = log2(e) times the biases of one of q_heads heads at the distance
/// first_distance + i, where the distance is the query's position minus the key's. Computed in
/// double, rounded once.
void fill_position_bias(const ScoreOptions& score, std::int64_t head, std::int64_t q_heads,
                        std::int64_t first_distance, std::span<float> by_distance);

}  // namespace fovea::kernels
