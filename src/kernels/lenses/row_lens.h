// SPDX-License-Identifier: Apache-2.0
//
// Lenses of a row of weights that is there as a whole, as decoding finds it. Keys lie along the
// lanes here, in the fused pass (lenses-inl.h) queries do.

#pragma once

#include <cstdint>

namespace fovea::kernels {

/// A row, as the logarithms of its weights to base 2; -inf where the key is hidden. Up to the next
/// multiple of kRowLensKeys keys it goes on with -inf.
struct WeightRowLogs {
  const float* log2_weights = nullptr;
  std::int64_t count = 0;
};
inline constexpr std::int64_t kRowLensKeys = 64;

/// Sums over keys j of a row with weights w and maximum_key c.
struct RowSums {
  double weights = 0.0;           // w
  double logs = 0.0;              // w log2(w)
  double distances = 0.0;         // w (j - c)
  double squares = 0.0;           // w (j - c)^2
  float maximum = 0.0f;           // log2 of the largest weight
  std::int64_t maximum_key = -1;  // the lowest of equals; -1: no key is visible, or the row is nan
  bool nan = false;
};
RowSums row_sums(const WeightRowLogs& row);

/// The `most` largest weights in descending order, the lower key first where they are equal: their
/// keys, and their logarithms. Returns how many there are, less than `most` where the row sees
/// fewer. Of a row that is not nan.
std::int64_t row_top(const WeightRowLogs& row, std::int64_t most, std::int64_t* keys,
                     float* log2_weights);

/// The weights themselves, `count` floats.
void row_weights(const WeightRowLogs& row, float* weights);

}  // namespace fovea::kernels
