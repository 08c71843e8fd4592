// SPDX-License-Identifier: Apache-2.0
//
// Rows of float32 numbers, rounded to the type of a tensor, for code outside the kernels.

#pragma once

#include <cstdint>

#include "fovea/tensor.h"

namespace fovea::kernels {

/// Writes `count` floats to `to`, rounded to `dtype`.
void write_row(const float* from, std::int64_t count, DType dtype, void* to);

/// A row and its factor in a weighted sum.
struct WeightedRow {
  double weight;
  const float* row;
};

/// Writes the weighted sum of `count` rows of `columns` floats to `to`. Adds in double precision,
/// in the order of the rows. Rounds to float32 and then to `dtype`, because direct conversion takes
/// longer.
void write_sum(const WeightedRow* rows, std::int64_t count, std::int64_t columns, DType dtype,
               void* to);

}  // namespace fovea::kernels
