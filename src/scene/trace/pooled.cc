// SPDX-License-Identifier: Apache-2.0
//
// Mean pooling (pooled.h). Rows and columns are distributed over cells as evenly as possible.
// Masked elements are excluded from the mean, and a cell is masked only if all its elements are.

#include "scene/trace/pooled.h"

#include <algorithm>

#include "problem/cells.h"

namespace fovea::scene {

Tensor pooled_mean(const TensorView& matrix, std::int64_t rows, std::int64_t columns) {
  const std::int64_t height = matrix.extent(0);
  const std::int64_t width = matrix.extent(1);
  Tensor result(DType::kFloat64, {std::min(rows, height), std::min(columns, width)});
  for_each_index(result.shape(), [&](const Index& at) {
    double sum = 0.0;
    std::int64_t count = 0;
    const std::int64_t last_row = cell_begin(at[0] + 1, height, result.extent(0));
    const std::int64_t last_column = cell_begin(at[1] + 1, width, result.extent(1));
    for (std::int64_t i = cell_begin(at[0], height, result.extent(0)); i < last_row; ++i) {
      for (std::int64_t j = cell_begin(at[1], width, result.extent(1)); j < last_column; ++j) {
        const double value = matrix.value({i, j});
        if (value == -HUGE_VAL) continue;
        sum += value;
        ++count;
      }
    }
    result.at<double>(at) = count == 0 ? -HUGE_VAL : sum / static_cast<double>(count);
  });
  return result;
}

}  // namespace fovea::scene
