// SPDX-License-Identifier: Apache-2.0
//
// Elements as files have them, and what becomes of them: a view where they can be looked at as they
// are, else a converted copy.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "fovea/tensor.h"

namespace fovea::files {

/// A type of elements.
struct StoredType {
  enum class Kind : std::uint8_t { kFloat, kBFloat, kSigned, kUnsigned, kBool, kNoType };
  Kind kind = Kind::kFloat;
  int size = 0;          // bytes
  bool swapped = false;  // the other byte order than this machine's

  /// What it is read as; nothing for bytes without a type.
  std::optional<DType> dtype() const;
};

/// An array's type and layout, without gaps.
struct StoredArray {
  StoredType type = {};
  Shape shape = {};
  bool fortran_order = false;  // the first dimension, not the last, has neighbours side by side

  /// Throws InvalidArgument, beginning with `place`, when the number does not fit into 63 bits.
  std::int64_t byte_count(const std::string& place) const;
};

/// Turns elements of a file into elements of `type.dtype()` at `output`. `place` and `first`, the
/// number of elements before these, are for the error about a number that int64 does not hold.
void decode(const StoredType& type, std::span<const std::byte> input, std::byte* output,
            const std::string& place, std::int64_t first = 0);

/// Owned elements in the order of the file, to be decoded into, and the tensor that they make.
class DecodedArray {
 public:
  /// Memory for all elements. The array must have a dtype().
  explicit DecodedArray(const StoredArray& array);
  std::byte* data() { return static_cast<std::byte*>(elements_->view().data()); }
  TensorRef tensor() const;

 private:
  StoredArray array_;
  std::shared_ptr<Tensor> elements_;
};

/// The tensor in `bytes`, which `owner` keeps and which are as many as the array has.
TensorRef tensor_in(const StoredArray& array, std::span<const std::byte> bytes,
                    std::shared_ptr<const void> owner, const std::string& place);

}  // namespace fovea::files
