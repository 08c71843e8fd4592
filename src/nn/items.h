// SPDX-License-Identifier: Apache-2.0
//
// Batches of sequences of different lengths: checks, and views of single time steps as rows.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "fovea/tensor.h"

namespace fovea::nn {

/// Returns [batch, length, width] as [batch * length, width]. Throws InvalidArgument, naming the
/// tensor, if the rank or the batch size differs (a `batch` of -1 accepts any size). Also throws as
/// as_rows().
TensorView as_rows_of_items(const TensorView& tensor, DType dtype, std::int64_t batch,
                            std::int64_t width, std::string_view name);

/// Copies the item lengths to `kept`, or sets all to `longest` if `lengths` is empty. Throws
/// InvalidArgument if the number of lengths is not `batch` or a length is outside 0 .. longest.
void keep_lengths(std::span<const std::int64_t> lengths, std::int64_t batch, std::int64_t longest,
                  std::vector<std::int64_t>& kept);

/// Returns columns [begin, begin + count) of `rows`.
template <class View>
View columns(const View& rows, std::int64_t begin, std::int64_t count) {
  using Pointee = std::remove_pointer_t<decltype(rows.data())>;
  using Byte = std::conditional_t<std::is_const_v<Pointee>, const std::byte, std::byte>;
  const std::int64_t bytes = begin * static_cast<std::int64_t>(dtype_size(rows.dtype()));
  return {static_cast<Byte*>(rows.data()) + bytes, rows.dtype(), Shape{rows.extent(0), count},
          rows.strides()};
}

/// Returns step `step` of [batch * length, width] as [batch, width].
template <class View>
View step_of(const View& rows, std::int64_t length, std::int64_t step) {
  const std::int64_t width = rows.extent(1), stride = rows.strides()[0];
  const View from = columns(rows, step * stride, width);
  return {from.data(), from.dtype(), Shape{rows.extent(0) / length, width},
          Strides{length * stride, 1}};
}

/// Both arguments have the same number of rows, width and dtype.
void copy_rows(const TensorView& from, const MutableTensorView& to);
void add_rows(const TensorView& from, const MutableTensorView& to);
void zero_rows(const MutableTensorView& rows);

}  // namespace fovea::nn
