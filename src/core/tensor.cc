// SPDX-License-Identifier: Apache-2.0
//
// Tensor storage, copies and conversion (fovea/tensor.h). Shapes whose sizes would overflow are
// rejected here, so that other code need not check for overflow.

#include "fovea/tensor.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "core/element_type.h"
#include "core/fail.h"
#include "core/large_pages.h"
#include "core/tensor_memory.h"

namespace fovea {
namespace {

constexpr std::align_val_t kAlignment{64};

std::int64_t to_int64(double value) {
  // The cast is undefined behaviour outside these bounds and for NaN.
  if (!(value >= -0x1p63 && value < 0x1p63)) {
    fail("convert: expected a number that int64 holds, got {}", value);
  }
  return static_cast<std::int64_t>(value);
}

/// Converts a number to an element, as set_value() does.
template <class T>
T element_of(double number) {
  if constexpr (std::is_same_v<T, std::int64_t>) {
    return to_int64(number);
  } else if constexpr (std::is_same_v<T, bool>) {
    return number != 0.0;
  } else {
    return static_cast<T>(number);
  }
}

/// Converts `count` elements at distance `stride` to contiguous elements of another type.
template <class From, class To>
void convert_row(const From* from, std::int64_t stride, std::int64_t count, To* to) {
  if constexpr (!std::is_same_v<From, To>) {
    for (std::int64_t i = 0; i < count; ++i) {
      to[i] = element_of<To>(static_cast<double>(from[i * stride]));
    }
  } else if (stride == 1) {
    // Copies bytes: int64 values must not pass through double, and NaN payloads must be preserved.
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(To));
  } else {
    for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i, from + i * stride, sizeof(To));
  }
}

}  // namespace

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kInt64:
      return "int64";
    case DType::kBool:
      return "bool";
  }
  return "unknown";
}

bool is_float(DType dtype) { return dtype != DType::kInt64 && dtype != DType::kBool; }

void Shape::fail_rank() { fail("tensor: expected at most {} dimensions, got more", kMaxRank); }

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  bool zero = false, fits = true;
  for (const std::int64_t extent : shape) {
    if (extent < 0) {
      fail("tensor: expected extents of 0 or more, got shape {}", to_string(shape));
    }
    zero = zero || extent == 0;
    // Of GCC and Clang; a division would take most of the time for a small tensor.
    fits = !__builtin_mul_overflow(count, extent, &count) && fits;
  }
  if (zero) return 0;
  if (!fits) fail("tensor: shape {} has more elements than fit into 63 bits", to_string(shape));
  return count;
}

Strides contiguous_strides(const Shape& shape) {
  element_count(shape);  // throws if the products below would overflow
  Strides strides = shape;
  // Unsigned, because the product of the other extents of an empty shape may be arbitrarily large.
  std::uint64_t step = 1;
  for (int dim = shape.rank() - 1; dim >= 0; --dim) {
    strides[dim] = static_cast<std::int64_t>(step);
    step *= static_cast<std::uint64_t>(std::max<std::int64_t>(shape[dim], 1));
  }
  return strides;
}

void Tensor::AlignedDelete::operator()(std::byte* p) const { ::operator delete[](p, kAlignment); }

Tensor::Tensor(DType dtype, const Shape& shape)
    : shape_(shape), strides_(contiguous_strides(shape)), dtype_(dtype), defined_(true) {
  const std::int64_t count = element_count(shape);
  const auto size = static_cast<std::int64_t>(dtype_size(dtype));
  if (count > std::numeric_limits<std::int64_t>::max() / size) {
    fail("tensor: shape {} of {} is too large", to_string(shape), dtype_name(dtype));
  }
  const auto bytes = static_cast<std::size_t>(count * size);
  data_.reset(
      static_cast<std::byte*>(::operator new[](std::max<std::size_t>(bytes, 1), kAlignment)));
  prefer_large_pages(data_.get(), bytes);
  std::memset(data_.get(), 0, bytes);
}

Tensor::Tensor(const TensorView& source) { *this = convert(source, source.dtype()); }

Tensor Tensor::matrix(std::initializer_list<std::initializer_list<double>> rows) {
  const std::size_t columns = rows.size() == 0 ? 0 : rows.begin()->size();
  std::vector<double> values;
  for (const auto& row : rows) {
    if (row.size() != columns) {
      fail("matrix: expected rows of {} numbers, got one of {}", columns, row.size());
    }
    values.insert(values.end(), row.begin(), row.end());
  }
  return from<double>({static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(columns)},
                      values);
}

Tensor::Tensor(const Tensor& other) {
  if (!other.defined_) return;
  *this = Tensor(other.dtype_, other.shape_);
  std::memcpy(data_.get(), other.data_.get(),
              static_cast<std::size_t>(size()) * dtype_size(dtype_));
}

Tensor& Tensor::operator=(const Tensor& other) {
  if (this != &other) *this = Tensor(other);
  return *this;
}

Tensor::Tensor(Tensor&& other) noexcept
    : data_(std::move(other.data_)),
      shape_(std::exchange(other.shape_, {})),
      strides_(std::exchange(other.strides_, {})),
      dtype_(std::exchange(other.dtype_, DType::kFloat64)),
      defined_(std::exchange(other.defined_, false)) {}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  if (this == &other) return *this;
  data_ = std::move(other.data_);
  shape_ = std::exchange(other.shape_, {});
  strides_ = std::exchange(other.strides_, {});
  dtype_ = std::exchange(other.dtype_, DType::kFloat64);
  defined_ = std::exchange(other.defined_, false);
  return *this;
}

TensorView Tensor::view() const {
  if (!defined_) return {};
  return {data_.get(), dtype_, shape_, strides_};
}

MutableTensorView Tensor::view() {
  if (!defined_) return {};
  return {data_.get(), dtype_, shape_, strides_};
}

Tensor Tensor::reshaped(const Shape& shape) && {
  check_count(element_count(shape));
  const Shape wanted = shape;  // `shape` may be that of this tensor, which is moved
  Tensor result = std::move(*this);
  result.shape_ = wanted;
  result.strides_ = contiguous_strides(wanted);
  return result;
}

void Tensor::check_count(std::int64_t count) const {
  if (count != size()) {
    fail("tensor: shape {} holds {} elements, got {}", to_string(shape_), size(), count);
  }
}

void set_value(const MutableTensorView& tensor, const Index& index, double number) {
  with_element(tensor.dtype(), [&](auto zero) {
    using T = decltype(zero);
    tensor.at<T>(index) = element_of<T>(number);
  });
}

Tensor convert(const TensorView& source, DType dtype) {
  if (!source.defined()) return {};
  memory_of(source, "convert");  // reports a null pointer
  Tensor result(dtype, source.shape());
  const MutableTensorView target = result.view();
  const int last = source.rank() - 1;
  const std::int64_t count = last < 0 ? 1 : source.extent(last);
  const std::int64_t stride = last < 0 ? 1 : source.strides()[last];
  Shape firsts = source.shape();
  if (count > 0 && last >= 0) firsts[last] = 1;
  with_element(source.dtype(), [&](auto from) {
    with_element(dtype, [&](auto to) {
      for_each_index(firsts, [&](const Index& first) {
        convert_row(&source.at<decltype(from)>(first), stride, count,
                    &target.at<decltype(to)>(first));
      });
    });
  });
  return result;
}

}  // namespace fovea
