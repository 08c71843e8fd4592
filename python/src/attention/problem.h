// SPDX-License-Identifier: Apache-2.0
//
// Converts query, key and value of 2, 3 or 4 dimensions to the engine's 4-dimensional views.

#pragma once

#include <algorithm>

#include "fovea/tensor.h"

#include "arrays/arrays.h"
#include "arrays/calls.h"

namespace fovea::python {

/// Returns the cost of a problem in flop, without the savings of masks.
inline double operations(const TensorView& query, const TensorView& key, const TensorView& value) {
  double product = 2.0;
  for (int dim = 0; dim < 3; ++dim) product *= static_cast<double>(query.extent(dim));
  product *= static_cast<double>(key.extent(2)) *
             static_cast<double>(std::max<std::int64_t>(query.extent(3) + value.extent(3), 1));
  // float64 calls run on the reference, which is about 50 times slower.
  return query.dtype() == DType::kFloat64 ? 50.0 * product : product;
}

inline void check_rank(const Array& array, const char* name) {
  if (array.rank() < 2 || array.rank() > 4) {
    raise_value_error(
        "{}: expected [batch, heads, length, dim], [heads, length, dim] or [length, dim], "
        "got {}",
        name, to_string(array.view().shape()));
  }
}

inline void check_same_rank(const Array& array, const char* name, const Array& other,
                            const char* name_of_other = "query") {
  if (array.rank() != other.rank()) {
    raise_value_error("{}: expected {} dimensions as {} has, got {}", name, other.rank(),
                      name_of_other, to_string(array.view().shape()));
  }
}

/// Returns the shape of a result with query's rank and last extent `last`; if `last` is -1, without
/// the last dimension.
inline Shape result_shape(const Shape& query, std::int64_t last) {
  Shape shape;
  for (int dim = 0; dim + 1 < query.rank(); ++dim) shape.push_back(query[dim]);
  if (last >= 0) shape.push_back(last);
  return shape;
}

}  // namespace fovea::python
