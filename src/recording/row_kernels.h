// SPDX-License-Identifier: Apache-2.0
//
// Vectorised loops over rows of weights, for the analyses (fovea/analysis.h).

#pragma once

#include <cstdint>

namespace fovea::recording {

/// Sums over some keys of two rows of weights.
struct DivergenceSums {
  double divergence = 0.0;  // in nats
  double first = 0.0;       // of the weights
  double second = 0.0;
};

/// Returns the terms of `count` keys in the Jensen-Shannon divergence of two rows.
DivergenceSums divergence_of(const float* first, const float* second, std::int64_t count);

/// Adds factor * row to `sums`.
void add_row(float factor, const float* row, std::int64_t count, float* sums);

/// Returns the product of two vectors.
float dot_product(const float* a, const float* b, std::int64_t count);

}  // namespace fovea::recording
