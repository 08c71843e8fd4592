// SPDX-License-Identifier: Apache-2.0
//
// Tensors: a pointer, a shape, strides and a type. Views do not own their elements; `Tensor` does.
// All other functions of Fovea take views, so any memory layout works without a copy.

#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "fovea/export.h"
#include "fovea/half.h"

namespace fovea {

/// The type of one element.
enum class DType : std::uint8_t { kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kBool };

/// Returns "float32", "float64", "float16", "bfloat16", "int64" or "bool".
FOVEA_API std::string_view dtype_name(DType dtype);

/// Returns the size of an element in bytes.
constexpr std::size_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 4;
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kBool:
      return 1;
  }
  return 0;
}

/// Returns whether the elements are floating-point numbers.
FOVEA_API bool is_float(DType dtype);

/// Returns the DType of a C++ type.
template <class T>
constexpr DType dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, float>) return DType::kFloat32;
  if constexpr (std::is_same_v<U, double>) return DType::kFloat64;
  if constexpr (std::is_same_v<U, Float16>) return DType::kFloat16;
  if constexpr (std::is_same_v<U, BFloat16>) return DType::kBFloat16;
  if constexpr (std::is_same_v<U, std::int64_t>) return DType::kInt64;
  if constexpr (std::is_same_v<U, bool>) return DType::kBool;
  static_assert(std::is_same_v<U, float> || std::is_same_v<U, double> ||
                    std::is_same_v<U, Float16> || std::is_same_v<U, BFloat16> ||
                    std::is_same_v<U, std::int64_t> || std::is_same_v<U, bool>,
                "an element is a float, double, Float16, BFloat16, int64_t or bool");
}

/// The maximum number of dimensions.
inline constexpr int kMaxRank = 6;

/// One number per dimension, stored inline. Used for shapes, strides and indices.
class FOVEA_API Shape {
 public:
  Shape() = default;
  /// Throws InvalidArgument if there are more than kMaxRank dimensions.
  Shape(std::initializer_list<std::int64_t> extents)
      : Shape(std::span(extents.begin(), extents.end())) {}
  explicit Shape(std::span<const std::int64_t> extents) : rank_(static_cast<int>(extents.size())) {
    if (extents.size() > kMaxRank) fail_rank();
    std::copy(extents.begin(), extents.end(), extents_.begin());
  }

  /// `rank` numbers, number_of(dim) for each dimension.
  template <class NumberOf>
  requires(std::is_invocable_r_v<std::int64_t, const NumberOf&, int>)
      Shape(int rank, const NumberOf& number_of)
      : rank_(rank) {
    assert(rank >= 0);
    if (rank > kMaxRank) fail_rank();
    for (int dim = 0; dim < rank; ++dim) extents_[static_cast<std::size_t>(dim)] = number_of(dim);
  }

  int rank() const { return rank_; }
  std::int64_t operator[](int dim) const {
    assert(dim >= 0 && dim < rank_);
    return extents_[static_cast<std::size_t>(dim)];
  }
  std::int64_t& operator[](int dim) {
    assert(dim >= 0 && dim < rank_);
    return extents_[static_cast<std::size_t>(dim)];
  }
  const std::int64_t* begin() const { return extents_.data(); }
  const std::int64_t* end() const { return extents_.data() + rank_; }

  /// Appends one dimension at the end.
  void push_back(std::int64_t extent) {
    if (rank_ == kMaxRank) fail_rank();
    extents_[static_cast<std::size_t>(rank_++)] = extent;
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    bool same = a.rank_ == b.rank_;
    for (std::size_t dim = 0; dim < kMaxRank; ++dim) {
      same = same && a.extents_[dim] == b.extents_[dim];
    }
    return same;
  }

 private:
  [[noreturn]] static void fail_rank();

  std::array<std::int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

/// Distances between neighbouring elements along each dimension, in elements.
using Strides = Shape;
/// A position in a tensor: one number per dimension.
using Index = Shape;

/// Returns a shape as text: "[2, 3]"; "[]" for a scalar.
FOVEA_API std::string to_string(const Shape& shape);

/// Returns the number of elements. Throws InvalidArgument if an extent is negative or the count
/// exceeds 63 bits.
FOVEA_API std::int64_t element_count(const Shape& shape);

/// Returns the strides of a row-major tensor without gaps. Throws InvalidArgument as element_count
/// does.
FOVEA_API Strides contiguous_strides(const Shape& shape);

/// A view of elements that another object owns. `Pointee` is `const void` (TensorView) or `void`
/// (MutableTensorView). A default-constructed view is undefined: `defined()` is false.
template <class Pointee>
class BasicTensorView {
  static constexpr bool kReadOnly = std::is_const_v<Pointee>;
  template <class T>
  using Element = std::conditional_t<kReadOnly, const T, T>;

 public:
  BasicTensorView() = default;

  BasicTensorView(Pointee* data, DType dtype, const Shape& shape, const Strides& strides)
      : data_(data), shape_(shape), strides_(strides), dtype_(dtype), defined_(true) {
    assert(shape.rank() == strides.rank());
  }

  /// As above, with extent_of(dim) and stride_of(dim) for each dimension. Faster: a shape that has
  /// just been written number by number takes long to copy.
  template <class ExtentOf, class StrideOf>
  BasicTensorView(Pointee* data, DType dtype, int rank, const ExtentOf& extent_of,
                  const StrideOf& stride_of)
      : data_(data),
        shape_(rank, extent_of),
        strides_(rank, stride_of),
        dtype_(dtype),
        defined_(true) {}

  /// A view of row-major elements without gaps.
  BasicTensorView(Pointee* data, DType dtype, const Shape& shape)
      : data_(data),
        shape_(shape),
        strides_(contiguous_strides(shape)),
        dtype_(dtype),
        defined_(true) {}
  template <class T>
  requires(!std::is_void_v<T> && (kReadOnly || !std::is_const_v<T>))
      BasicTensorView(T* data, const Shape& shape)
      : BasicTensorView(data, dtype_of<T>(), shape) {}

  /// Converts a mutable view to a read-only one.
  template <class Other>
  requires(kReadOnly && !std::is_const_v<Other>)
      BasicTensorView(const BasicTensorView<Other>& other)  // NOLINT: implicit on purpose
      : data_(other.data()),
        shape_(other.shape()),
        strides_(other.strides()),
        dtype_(other.dtype()),
        defined_(other.defined()) {}

  bool defined() const { return defined_; }
  Pointee* data() const { return data_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  int rank() const { return shape_.rank(); }
  std::int64_t extent(int dim) const { return shape_[dim]; }
  std::int64_t size() const { return defined_ ? element_count(shape_) : 0; }

  /// Returns the element at `index`. T must be the tensor's type.
  template <class T>
  Element<T>& at(const Index& index) const {
    assert(defined_ && dtype_ == dtype_of<T>());
    return static_cast<Element<T>*>(data_)[offset(index)];
  }

  /// Returns the address of the element at `index`, for any type.
  Pointee* address(const Index& index) const {
    assert(defined_);
    return advance(offset(index));
  }

  /// Returns the element at `index` as a double. int64 beyond 2^53 is rounded; bool gives 0 or 1.
  double value(const Index& index) const {
    const std::int64_t at = offset(index);
    switch (dtype_) {
      case DType::kFloat32:
        return static_cast<double>(static_cast<const float*>(data_)[at]);
      case DType::kFloat64:
        return static_cast<const double*>(data_)[at];
      case DType::kFloat16:
        return static_cast<double>(static_cast<const Float16*>(data_)[at]);
      case DType::kBFloat16:
        return static_cast<double>(static_cast<const BFloat16*>(data_)[at]);
      case DType::kInt64:
        return static_cast<double>(static_cast<const std::int64_t*>(data_)[at]);
      case DType::kBool:
        return static_cast<const bool*>(data_)[at] ? 1.0 : 0.0;
    }
    return 0.0;
  }

  /// Returns the sub-tensor at position `i` of the first dimension, one rank lower.
  BasicTensorView operator[](std::int64_t i) const {
    assert(rank() > 0 && i >= 0 && i < shape_[0]);
    const Shape rest(std::span(shape_.begin() + 1, shape_.end()));
    const Strides rest_strides(std::span(strides_.begin() + 1, strides_.end()));
    return {advance(i * strides_[0]), dtype_, rest, rest_strides};
  }

  /// Returns a view with two dimensions swapped.
  BasicTensorView transposed(int dim_a, int dim_b) const {
    BasicTensorView result = *this;
    std::swap(result.shape_[dim_a], result.shape_[dim_b]);
    std::swap(result.strides_[dim_a], result.strides_[dim_b]);
    return result;
  }

 private:
  std::int64_t offset(const Index& index) const {
    assert(index.rank() == rank());
    std::int64_t at = 0;
    for (int dim = 0; dim < rank(); ++dim) {
      assert(index[dim] >= 0 && index[dim] < shape_[dim]);
      at += index[dim] * strides_[dim];
    }
    return at;
  }

  Pointee* advance(std::int64_t elements) const {
    using Byte = std::conditional_t<kReadOnly, const std::byte, std::byte>;
    if (data_ == nullptr) return nullptr;
    return static_cast<Byte*>(data_) + elements * static_cast<std::int64_t>(dtype_size(dtype_));
  }

  Pointee* data_ = nullptr;
  Shape shape_;
  Strides strides_;
  DType dtype_ = DType::kFloat64;
  bool defined_ = false;
};

using TensorView = BasicTensorView<const void>;
using MutableTensorView = BasicTensorView<void>;

/// A tensor that owns its elements: row-major, without gaps, aligned to 64 bytes. Copies are deep.
/// A default-constructed tensor is undefined, like a default-constructed view.
class FOVEA_API Tensor {
 public:
  Tensor() = default;
  /// A tensor of zeros. Throws InvalidArgument if the size in bytes exceeds 63 bits, and
  /// std::bad_alloc if the allocation fails.
  Tensor(DType dtype, const Shape& shape);
  /// A contiguous copy of a view.
  explicit Tensor(const TensorView& source);
  /// Returns a float64 matrix with these rows. Throws InvalidArgument if rows differ in length.
  static Tensor matrix(std::initializer_list<std::initializer_list<double>> rows);
  /// Returns a tensor of `values` in row-major order. Throws InvalidArgument if the value count
  /// does not fit `shape`.
  template <class T>
  static Tensor from(const Shape& shape, std::span<const T> values) {
    Tensor result(dtype_of<T>(), shape);
    result.check_count(static_cast<std::int64_t>(values.size()));
    std::copy(values.begin(), values.end(), result.span<T>().begin());
    return result;
  }
  template <class T>
  requires(!std::is_same_v<T, bool>)  // vector<bool> is a bit set, not an array of bool
      static Tensor from(const Shape& shape, const std::vector<T>& values) {
    return from(shape, std::span<const T>(values));
  }

  Tensor(const Tensor& other);
  Tensor& operator=(const Tensor& other);
  /// A moved-from tensor is undefined.
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor() = default;

  bool defined() const { return defined_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  std::int64_t extent(int dim) const { return shape_[dim]; }
  std::int64_t size() const { return defined_ ? element_count(shape_) : 0; }

  TensorView view() const;
  MutableTensorView view();
  operator TensorView() const { return view(); }   // NOLINT: implicit on purpose
  operator MutableTensorView() { return view(); }  // NOLINT: implicit on purpose

  /// Returns all elements in row-major order. T must be the tensor's type.
  template <class T>
  std::span<T> span() {
    assert(dtype_ == dtype_of<T>());
    return {reinterpret_cast<T*>(data_.get()), static_cast<std::size_t>(size())};
  }
  template <class T>
  std::span<const T> span() const {
    assert(dtype_ == dtype_of<T>());
    return {reinterpret_cast<const T*>(data_.get()), static_cast<std::size_t>(size())};
  }

  template <class T>
  const T& at(const Index& index) const {
    return view().at<T>(index);
  }
  template <class T>
  T& at(const Index& index) {
    return view().at<T>(index);
  }
  double value(const Index& index) const { return view().value(index); }

  /// Returns the same elements with another shape. Throws InvalidArgument if the element counts
  /// differ.
  Tensor reshaped(const Shape& shape) &&;

 private:
  void check_count(std::int64_t count) const;

  struct AlignedDelete {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], AlignedDelete> data_;
  Shape shape_;
  Strides strides_;
  DType dtype_ = DType::kFloat64;
  bool defined_ = false;
};

/// A reference to a tensor that is used beyond one call. If constructed from a view or an lvalue
/// tensor, it does not own the elements, which must outlive the reference. If constructed from a
/// temporary tensor or with an owner, it shares ownership of the elements with its copies.
class TensorRef {
 public:
  TensorRef() = default;
  TensorRef(const TensorView& view) : view_(view) {}         // NOLINT: implicit on purpose
  TensorRef(const Tensor& tensor) : view_(tensor.view()) {}  // NOLINT: implicit on purpose
  TensorRef(Tensor&& tensor)                                 // NOLINT: implicit on purpose
      : TensorRef(std::make_shared<const Tensor>(std::move(tensor))) {}
  /// References a view whose memory `owner` keeps alive, such as a mapped file.
  TensorRef(const TensorView& view, std::shared_ptr<const void> owner)
      : owner_(std::move(owner)), view_(view) {}

  bool defined() const { return view_.defined(); }
  const TensorView& view() const { return view_; }
  const TensorView* operator->() const { return &view_; }
  operator const TensorView&() const { return view_; }  // NOLINT: implicit on purpose

 private:
  explicit TensorRef(std::shared_ptr<const Tensor> owner) : view_(owner->view()) {
    owner_ = std::move(owner);
  }

  std::shared_ptr<const void> owner_;  // null if the elements are not owned
  TensorView view_;
};

/// Sets the element at `index` to `number`, rounded to its type; for int64 the fraction is
/// truncated. Throws InvalidArgument if int64 cannot represent the number.
FOVEA_API void set_value(const MutableTensorView& tensor, const Index& index, double number);

/// Returns a contiguous copy in another type; an undefined view gives an undefined tensor. Numbers
/// are converted, and errors thrown, as in set_value.
FOVEA_API Tensor convert(const TensorView& source, DType dtype);

/// Calls `visit(index)` for every index of `shape`, in row-major order.
template <class Visitor>
void for_each_index(const Shape& shape, Visitor&& visit) {
  if (element_count(shape) == 0) return;
  Index index = shape;
  for (int dim = 0; dim < shape.rank(); ++dim) index[dim] = 0;
  while (true) {
    visit(static_cast<const Index&>(index));
    int dim = shape.rank() - 1;
    for (; dim >= 0; --dim) {
      if (++index[dim] < shape[dim]) break;
      index[dim] = 0;
    }
    if (dim < 0) return;
  }
}

}  // namespace fovea
