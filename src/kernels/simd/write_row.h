// SPDX-License-Identifier: Apache-2.0
//
// Rows of float32 numbers, rounded to the type of a tensor, for code outside the kernels.

#pragma once

#include <cstdint>

#include "fovea/tensor.h"

namespace fovea::kernels {

/// Writes `count` floats to `to`, rounded to `dtype`.
void write_row(const float* from, std::int64_t count, DType dtype, void* to);

/// A row of a sum, and its factor.
struct WeightedRow {
  double weight;
  const float* row;
};

/// Writes the sum of `count` rows of `columns` floats times their weights to `to`. The sum is
/// computed in double precision, in the order of the rows. It is rounded to float32 and then to
/// `dtype`, because direct conversion takes longer.
void write_sum(const WeightedRow* rows, std::int64_t count, std::int64_t columns, DType dtype,
               void* to);

}  // namespace fovea::kernels
