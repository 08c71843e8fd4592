// SPDX-License-Identifier: Apache-2.0
//
// The storage type under test, and helpers that fill, change and read tensors of any type.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "fovea/tensor.h"

namespace fovea::test {

/// Returns the type named by FOVEA_TEST_STORAGE, or float32 if it is unset. One test program thus
/// covers every type, as FOVEA_TARGET lets it cover every target.
inline DType storage() {
  static const DType type = [] {
    const char* const wish = std::getenv("FOVEA_TEST_STORAGE");
    if (wish == nullptr || *wish == '\0') return DType::kFloat32;
    for (const DType one : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      if (dtype_name(one) == wish) return one;
    }
    std::fprintf(stderr, "FOVEA_TEST_STORAGE: expected float32, bfloat16 or float16, got \"%s\"\n",
                 wish);
    std::exit(2);
  }();
  return type;
}

/// Returns a copy in the storage type under test.
inline Tensor stored(const TensorView& tensor) { return convert(tensor, storage()); }

/// Returns the largest relative error of rounding to a type.
inline double rounding_of(DType type) {
  switch (type) {
    case DType::kBFloat16:
      return 0x1p-8;
    case DType::kFloat16:
      return 0x1p-11;
    default:
      return 0x1p-24;
  }
}

/// Returns the largest absolute error of rounding to a type's subnormal numbers: half of the
/// smallest one.
inline double rounding_near_zero(DType type) {
  switch (type) {
    case DType::kBFloat16:
      return 0x1p-134;
    case DType::kFloat16:
      return 0x1p-25;
    default:
      return 0x1p-150;
  }
}

/// Replaces every element x by change(x).
template <class Change>
void change_all(const MutableTensorView& tensor, const Change& change) {
  for_each_index(tensor.shape(),
                 [&](const Index& at) { set_value(tensor, at, change(tensor.value(at))); });
}

inline void fill(const MutableTensorView& tensor, double number) {
  change_all(tensor, [&](double) { return number; });
}

/// Returns true if all elements equal `number` rounded to their type.
inline bool all_are(const TensorView& tensor, double number) {
  Tensor one(tensor.dtype(), {});
  set_value(one, {}, number);
  bool same = true;
  for_each_index(tensor.shape(),
                 [&](const Index& at) { same = same && tensor.value(at) == one.value({}); });
  return same;
}

/// Returns a view of the same memory with another shape and strides, starting at element `first`.
template <class Pointee>
BasicTensorView<Pointee> laid_over(const BasicTensorView<Pointee>& memory, std::int64_t first,
                                   const Shape& shape, const Strides& strides) {
  using Byte = std::conditional_t<std::is_const_v<Pointee>, const std::byte, std::byte>;
  const auto size = static_cast<std::int64_t>(dtype_size(memory.dtype()));
  return {static_cast<Byte*>(memory.data()) + first * size, memory.dtype(), shape, strides};
}

/// Copies one element bit by bit.
inline void copy_element(const TensorView& from, const Index& at, const MutableTensorView& to,
                         const Index& there) {
  std::memcpy(to.address(there), from.address(at), dtype_size(from.dtype()));
}

/// Returns rows [`start`, `start` + `count`) of a tensor of rank 4.
inline TensorView rows_from(const Tensor& tensor, std::int64_t start, std::int64_t count) {
  Shape shape = tensor.shape();
  shape[2] = count;
  return laid_over(tensor.view(), start * tensor.extent(3), shape, tensor.view().strides());
}

}  // namespace fovea::test
