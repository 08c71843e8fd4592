// SPDX-License-Identifier: Apache-2.0
//
// Views of contiguous float32 or float64 tensors as rows of the last dimension, and loops over rows
// in parallel.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fovea/nn/buffer.h"
#include "fovea/tensor.h"

#include "engine/call/parallel.h"
#include "engine/call/workspace.h"
#include "nn/stop.h"

namespace fovea::nn {

/// Throws InvalidArgument, naming the tensor, if it is undefined, has another dtype or is not
/// contiguous.
void check_numbers(const TensorView& tensor, DType dtype, std::string_view name);
/// Same as check_numbers(), but also throws if the shape differs.
void check_numbers_of(const TensorView& tensor, DType dtype, const Shape& shape,
                      std::string_view name);

/// Returns [..., width] as [rows, width]. Same checks as check_numbers(), but also throws if the
/// width differs.
TensorView as_rows(const TensorView& tensor, DType dtype, std::int64_t width,
                   std::string_view name);
/// Same as as_rows(), but also throws if the shape differs.
TensorView as_rows_of(const TensorView& tensor, DType dtype, const Shape& shape,
                      std::string_view name);

/// Copies contiguous int64 numbers to `buffer`, so that the caller may free the original, and
/// returns the copy.
const std::int64_t* copy_numbers(const TensorView& numbers, Buffer& buffer);

/// Returns `shape` with its last extent replaced by `width`.
Shape with_width(const Shape& shape, std::int64_t width);

/// Returns a view of the same elements with another shape of equal size.
inline MutableTensorView reshaped(const MutableTensorView& contiguous, const Shape& shape) {
  return {contiguous.data(), contiguous.dtype(), shape};
}

/// Calls `visit` with a zero of type float or double, according to `dtype`.
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

/// Splits [0, count) into ranges of `grain` and calls work(begin, end) for each, in parallel.
/// Ranges depend only on `count` and `grain`, so the thread count never affects rounding. Throws
/// Stopped after a stop request (nn/stop.h).
template <class Callable>
void for_each_range(std::int64_t count, std::int64_t grain, const Callable& work) {
  const std::int64_t items = (count + grain - 1) / grain;
  const auto item = [&](std::int64_t number, int) {
    work(number * grain, std::min(count, (number + 1) * grain));
  };
  if (items == 0) return;
  const engine::OpenMpThreads threads;  // those of the matrix products
  engine::for_each_item({.stop = current_stop()}, engine::thread_count({}, items), items, item);
}

/// Calls work(begin, end) for ranges of rows of about 16,000 elements each, in parallel.
template <class Callable>
void for_each_rows(std::int64_t rows, std::int64_t width, const Callable& work) {
  constexpr std::int64_t kNumbers = 16 * 1024;
  for_each_range(rows, std::max<std::int64_t>(1, kNumbers / std::max<std::int64_t>(1, width)),
                 work);
}

/// Adds sums over rows to sums[width]. Calls work(begin, end, to) in parallel, for ranges of rows;
/// each call adds its rows to `to`, which starts as zeros. The partial sums are then added in the
/// order of the ranges, so the thread count never affects rounding.
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

/// Adds the sum of each column of `rows` to `sums`. If `factors` (of the same shape) is defined,
/// the rows are first multiplied by it, element by element.
void add_column_sums(const TensorView& rows, const MutableTensorView& sums,
                     const TensorView& factors = {});

/// Computes to += from. Both are contiguous and have the same size.
void add(const MutableTensorView& to, const TensorView& from);

}  // namespace fovea::nn
