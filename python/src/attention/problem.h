// SPDX-License-Identifier: Apache-2.0
//
// Query, key and value of a call, of 2, 3 or 4 dimensions each, as the engine sees them.

#pragma once

#include <algorithm>

#include "fovea/tensor.h"

#include "arrays/arrays.h"
#include "arrays/calls.h"

namespace fovea::python {

/// Multiplications and additions of a problem, before what masks save.
inline double operations(const TensorView& query, const TensorView& key, const TensorView& value) {
  double product = 2.0;
  for (int dim = 0; dim < 3; ++dim) product *= static_cast<double>(query.extent(dim));
  product *= static_cast<double>(key.extent(2)) *
             static_cast<double>(std::max<std::int64_t>(query.extent(3) + value.extent(3), 1));
  // The reference, which computes float64, is some 50 times slower.
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

inline void check_same_rank(const Array& array, const char* name, const Array& query) {
  if (array.rank() != query.rank()) {
    raise_value_error("{}: expected {} dimensions as query has, got {}", name, query.rank(),
                      to_string(array.view().shape()));
  }
}

/// The shape of a result with rows of `last` numbers, of query's rank: without, if `last` is -1.
inline Shape result_shape(const Shape& query, std::int64_t last) {
  Shape shape;
  for (int dim = 0; dim + 1 < query.rank(); ++dim) shape.push_back(query[dim]);
  if (last >= 0) shape.push_back(last);
  return shape;
}

}  // namespace fovea::python
