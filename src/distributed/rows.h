// SPDX-License-Identifier: Apache-2.0
//
// Ranges along the length of tensors [batch, heads, length, ...], dimension 2.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fovea/tensor.h"

namespace fovea::distributed {

/// Returns a view of `count` rows from `first` on.
template <class Pointee>
BasicTensorView<Pointee> rows_from(const BasicTensorView<Pointee>& tensor, std::int64_t first,
                                   std::int64_t count) {
  Shape shape = tensor.shape();
  shape[2] = count;
  Index at = shape;
  for (int dim = 0; dim < at.rank(); ++dim) at[dim] = dim == 2 ? first : 0;
  const bool empty = element_count(shape) == 0;
  return {empty ? tensor.data() : tensor.address(at), tensor.dtype(), shape, tensor.strides()};
}

/// Returns one head of a tensor [batch, heads, length, ...] as [1, 1, length, ...].
inline TensorView head_of(const TensorView& tensor, std::int64_t batch, std::int64_t head) {
  Shape shape = tensor.shape();
  shape[0] = shape[1] = 1;
  Index at = shape;
  for (int dim = 0; dim < at.rank(); ++dim) at[dim] = 0;
  at[0] = batch;
  at[1] = head;
  const bool empty = tensor.size() == 0;
  return {empty ? tensor.data() : tensor.address(at), tensor.dtype(), shape, tensor.strides()};
}

/// Copies all elements between tensors of the same shape and type, in runs that are contiguous in
/// both.
inline void copy_rows(const TensorView& from, const MutableTensorView& to) {
  if (element_count(from.shape()) == 0) return;
  Shape outer = from.shape();
  std::int64_t run = 1;
  for (int dim = from.rank() - 1; dim >= 0; --dim) {
    const bool contiguous = from.strides()[dim] == run && to.strides()[dim] == run;
    if (!contiguous && from.extent(dim) > 1) break;
    run *= from.extent(dim);
    outer[dim] = 1;
  }
  const std::size_t bytes = static_cast<std::size_t>(run) * dtype_size(from.dtype());
  for_each_index(outer,
                 [&](const Index& at) { std::memcpy(to.address(at), from.address(at), bytes); });
}

}  // namespace fovea::distributed
