// SPDX-License-Identifier: Apache-2.0
//
// Splits projected rows into heads.

#pragma once

#include <cstdint>

#include "fovea/tensor.h"

namespace fovea::scene {

/// Views [batch, length, heads * dim] as [batch, heads, length, dim] without a copy.
inline TensorView split_heads(const Tensor& tensor, std::int64_t heads) {
  const std::int64_t length = tensor.extent(1);
  const std::int64_t columns = tensor.extent(2);
  const std::int64_t dim = columns / heads;
  const TensorView view = tensor;
  return {view.data(),
          view.dtype(),
          {tensor.extent(0), heads, length, dim},
          {length * columns, dim, columns, 1}};
}

}  // namespace fovea::scene
