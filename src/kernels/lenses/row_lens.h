// SPDX-License-Identifier: Apache-2.0
//
// Lenses of a complete row of weights, as decoding computes it. Here, keys are laid out across
// lanes; in the fused pass (lenses-inl.h), queries are.

#pragma once

#include <cstdint>

namespace fovea::kernels {

/// Base-2 logarithms of a row of weights; -inf for hidden keys. The memory is padded with -inf up
/// to a multiple of kRowLensKeys keys.
struct WeightRowLogs {
  const float* log2_weights = nullptr;
  std::int64_t count = 0;
};
inline constexpr std::int64_t kRowLensKeys = 64;

/// Sums over the keys j of a row, with weights w and c = maximum_key.
struct RowSums {
  double weights = 0.0;           // w
  double logs = 0.0;              // w log2(w)
  double distances = 0.0;         // w (j - c)
  double squares = 0.0;           // w (j - c)^2
  float maximum = 0.0f;           // log2 of the largest weight
  std::int64_t maximum_key = -1;  // lowest key on ties; -1 if none is visible or the row is NaN
  bool nan = false;
};
RowSums row_sums(const WeightRowLogs& row);

/// Writes the keys and logarithms of the `most` largest weights in descending order, with ties
/// broken by the lower key. Returns the number of keys written, less than `most` if fewer keys are
/// visible. The row must not contain NaN.
std::int64_t row_top(const WeightRowLogs& row, std::int64_t most, std::int64_t* keys,
                     float* log2_weights);

/// Writes the weights themselves, `count` floats.
void row_weights(const WeightRowLogs& row, float* weights);

}  // namespace fovea::kernels
