// SPDX-License-Identifier: Apache-2.0
//
// Rows of a tensor of any type, for kernels.

#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "fovea/tensor.h"

namespace fovea::kernels {

/// Rows of a tensor in its storage type: row r begins r * stride elements after data. `Pointee` is
/// void or const void.
template <class Pointee>
struct RowsOf {
  using Byte = std::conditional_t<std::is_const_v<Pointee>, const std::byte, std::byte>;

  Pointee* data = nullptr;
  std::int64_t stride = 0;
  DType dtype = DType::kFloat32;

  /// Returns the address of row `row`.
  Byte* row(std::int64_t row) const { return at(row * stride); }
  /// Returns the address `elements` elements after the first row.
  Byte* at(std::int64_t elements) const {
    return static_cast<Byte*>(data) + elements * static_cast<std::int64_t>(dtype_size(dtype));
  }
  /// Returns a typed pointer to row `number`. T must be the tensor's type.
  template <class T>
  auto* row_as(std::int64_t number) const {
    using Element = std::conditional_t<std::is_const_v<Pointee>, const T, T>;
    assert(dtype == dtype_of<T>());
    return static_cast<Element*>(data) + number * stride;
  }
};
using InputRows = RowsOf<const void>;
using OutputRows = RowsOf<void>;

}  // namespace fovea::kernels
