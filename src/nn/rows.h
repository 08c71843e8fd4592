// SPDX-License-Identifier: Apache-2.0
//
// A contiguous tensor as rows of its last dimension, in float32 or float64, and rows on threads.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fovea/nn/buffer.h"
#include "fovea/tensor.h"

#include "engine/call/parallel.h"
#include "engine/call/workspace.h"

namespace fovea::nn {

/// Throws InvalidArgument, naming the tensor, for another type or gaps between its numbers.
void check_numbers(const TensorView& tensor, DType dtype, std::string_view name);
/// The same, and for another shape.
void check_numbers_of(const TensorView& tensor, DType dtype, const Shape& shape,
                      std::string_view name);

/// [..., width] as [rows, width]. Throws as check_numbers does, and for another width.
TensorView as_rows(const TensorView& tensor, DType dtype, std::int64_t width,
                   std::string_view name);
/// The same, of exactly this shape before.
TensorView as_rows_of(const TensorView& tensor, DType dtype, const Shape& shape,
                      std::string_view name);

/// Contiguous int64 numbers, kept in `buffer`, so that whoever gave them may let them go.
const std::int64_t* copy_numbers(const TensorView& numbers, Buffer& buffer);

/// The shape of a tensor with another last extent.
Shape with_width(const Shape& shape, std::int64_t width);

/// The same numbers under another shape of as many.
inline MutableTensorView reshaped(const MutableTensorView& contiguous, const Shape& shape) {
  return {contiguous.data(), contiguous.dtype(), shape, contiguous_strides(shape)};
}

/// Calls `visit` with a zero of the type, float or double.
template <class Visitor>
void with_real(DType dtype, Visitor&& visit) {
  if (dtype == DType::kFloat32) {
    visit(float{});
  } else {
    visit(double{});
  }
}

template <class Real>
const Real* row(const TensorView& rows, std::int64_t number) {
  return static_cast<const Real*>(rows.data()) + number * rows.strides()[0];
}
template <class Real>
Real* row(const MutableTensorView& rows, std::int64_t number) {
  return static_cast<Real*>(rows.data()) + number * rows.strides()[0];
}

/// Calls work(begin, end) for ranges of `grain` of 0 .. count, on threads. What each range is
/// follows from the count alone, and so does what is rounded how.
template <class Callable>
void for_each_range(std::int64_t count, std::int64_t grain, const Callable& work) {
  const std::int64_t items = (count + grain - 1) / grain;
  const auto item = [&](std::int64_t number, int) {
    work(number * grain, std::min(count, (number + 1) * grain));
  };
  if (items > 0) engine::for_each_item({}, engine::thread_count({}, items), items, item);
}

/// The same for rows of this width, some ten thousand numbers at a time.
template <class Callable>
void for_each_rows(std::int64_t rows, std::int64_t width, const Callable& work) {
  constexpr std::int64_t kNumbers = 16 * 1024;
  for_each_range(rows, std::max<std::int64_t>(1, kNumbers / std::max<std::int64_t>(1, width)),
                 work);
}

/// sums[width] += what work(begin, end, to) adds to its `to` of zeros, for ranges of rows; on
/// threads, and each range is added in its turn.
template <class Real, class Callable>
void add_sums_of_rows(std::int64_t rows, std::int64_t width, Real* sums, const Callable& work) {
  constexpr std::int64_t kRows = 128;
  const std::int64_t ranges = (rows + kRows - 1) / kRows;
  const std::size_t bytes = static_cast<std::size_t>(ranges * width) * sizeof(Real);
  const engine::Workspace workspace({}, bytes);
  Real* const parts = reinterpret_cast<Real*>(workspace.data());
  for_each_range(rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    Real* const part = parts + begin / kRows * width;
    std::fill(part, part + width, Real{0});
    work(begin, end, part);
  });
  for (std::int64_t range = 0; range < ranges; ++range) {
    for (std::int64_t c = 0; c < width; ++c) sums[c] += parts[range * width + c];
  }
}

/// sums += the sum of all rows, each column by itself; or, with factors of the same shape, of their
/// products, element by element.
void add_column_sums(const TensorView& rows, const MutableTensorView& sums,
                     const TensorView& factors = {});

/// to += from, contiguous and of as many numbers.
void add(const MutableTensorView& to, const TensorView& from);

}  // namespace fovea::nn
