// SPDX-License-Identifier: Apache-2.0
//
// Row views: checks, copies and column sums (rows.h).

#include "nn/rows.h"

#include "core/fail.h"
#include "nn/passes.h"

namespace fovea::nn {

void check_numbers(const TensorView& tensor, DType dtype, std::string_view name) {
  if (!tensor.defined() || (tensor.data() == nullptr && tensor.size() > 0))
    fail("{}: expected a tensor, got none", name);
  if (tensor.dtype() != dtype) {
    fail("{}: expected {}, as the parameters are, got {}", name, dtype_name(dtype),
         dtype_name(tensor.dtype()));
  }
  if (tensor.size() > 0 && tensor.strides() != contiguous_strides(tensor.shape())) {
    fail("{}: expected contiguous rows, got strides {}", name, to_string(tensor.strides()));
  }
}

void check_numbers_of(const TensorView& tensor, DType dtype, const Shape& shape,
                      std::string_view name) {
  check_numbers(tensor, dtype, name);
  if (tensor.shape() != shape) {
    fail("{}: expected {}, got {}", name, to_string(shape), to_string(tensor.shape()));
  }
}

TensorView as_rows(const TensorView& tensor, DType dtype, std::int64_t width,
                   std::string_view name) {
  check_numbers(tensor, dtype, name);
  const Shape& shape = tensor.shape();
  if (shape.rank() == 0 || shape[shape.rank() - 1] != width) {
    fail("{}: expected [..., {}], got {}", name, width, to_string(shape));
  }
  const std::int64_t rows = width == 0 ? 0 : tensor.size() / width;
  return {tensor.data(), dtype, Shape{rows, width}, Strides{width, 1}};
}

TensorView as_rows_of(const TensorView& tensor, DType dtype, const Shape& shape,
                      std::string_view name) {
  check_numbers_of(tensor, dtype, shape, name);
  return as_rows(tensor, dtype, shape[shape.rank() - 1], name);
}

const std::int64_t* copy_numbers(const TensorView& numbers, Buffer& buffer) {
  const auto* const from = static_cast<const std::int64_t*>(numbers.data());
  auto* const to = static_cast<std::int64_t*>(buffer.of(DType::kInt64, numbers.shape()).data());
  std::copy(from, from + numbers.size(), to);
  return to;
}

Shape with_width(const Shape& shape, std::int64_t width) {
  Shape result = shape;
  result[result.rank() - 1] = width;
  return result;
}

void add_column_sums(const TensorView& rows, const MutableTensorView& sums,
                     const TensorView& factors) {
  with_real(rows.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    const auto& passes = passes::table<Real>();
    const std::int64_t width = rows.extent(1);
    add_sums_of_rows(rows.extent(0), width, static_cast<Real*>(sums.data()),
                     [&](std::int64_t begin, std::int64_t end, Real* to) {
                       const bool alone = !factors.defined();
                       passes.add_columns(row<Real>(rows, begin), rows.strides()[0],
                                          alone ? nullptr : row<Real>(factors, begin),
                                          alone ? 0 : factors.strides()[0], end - begin, width, to);
                     });
  });
}

void add(const MutableTensorView& to, const TensorView& from) {
  with_real(to.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    Real* const sums = static_cast<Real*>(to.data());
    const Real* const numbers = static_cast<const Real*>(from.data());
    const auto& passes = passes::table<Real>();
    for_each_rows(to.size(), 1, [=, &passes](std::int64_t begin, std::int64_t end) {
      passes.add(sums + begin, numbers + begin, end - begin);
    });
  });
}

}  // namespace fovea::nn
