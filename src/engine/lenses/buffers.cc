// SPDX-License-Identifier: Apache-2.0
//
// Allocation of lens outputs (fovea/lens_buffers.h).

#include "fovea/lens_buffers.h"

#include "core/fail.h"

namespace fovea {

LensBuffers::LensBuffers(const ProblemShape& shape, DType inputs, const LensChoice& choice)
    : pool(choice.pool) {
  if (choice.top < 0) fail_argument("top", "expected 0 keys or more, got {}", choice.top);
  if (choice.map_rows < 0 || choice.map_columns < 0 ||
      (choice.map_rows == 0) != (choice.map_columns == 0)) {
    fail_argument("map", "expected rows and columns of 1 or more, or 0 for none, got {} x {}",
                  choice.map_rows, choice.map_columns);
  }
  const DType sums = inputs == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  if (choice.statistics) {
    const Shape rows = {shape.batch, shape.q_heads, shape.q_len};
    for (Tensor* const tensor :
         {&entropy, &maximum, &mean_distance, &distance_variance, &first_key}) {
      *tensor = Tensor(sums, rows);
    }
    maximum_key = Tensor(DType::kInt64, rows);
  }
  if (choice.top > 0) {
    const Shape each = {shape.batch, shape.q_heads, shape.q_len, choice.top};
    top_keys = Tensor(DType::kInt64, each);
    top_weights = Tensor(sums, each);
  }
  if (choice.map_rows > 0) {
    const Shape map = {shape.batch, shape.q_heads, choice.map_rows, choice.map_columns};
    cells = Tensor(sums, map);
    if (choice.pairs) pairs = Tensor(DType::kInt64, map);
  }
}

Lenses LensBuffers::lenses() {
  return {.rows = {.entropy = entropy,
                   .maximum = maximum,
                   .maximum_key = maximum_key,
                   .mean_distance = mean_distance,
                   .distance_variance = distance_variance,
                   .first_key = first_key},
          .top = {.keys = top_keys, .weights = top_weights},
          .map = {.cells = cells, .pairs = pairs, .pool = pool}};
}

}  // namespace fovea
