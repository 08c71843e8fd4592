// SPDX-License-Identifier: Apache-2.0
//
// Elements as stored in files. The tensor is a view of the stored bytes if Fovea can use them
// directly, and a converted copy otherwise.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "fovea/tensor.h"

namespace fovea::files {

/// Element type of a file.
struct StoredType {
  enum class Kind : std::uint8_t { kFloat, kBFloat, kSigned, kUnsigned, kBool, kNoType };
  Kind kind = Kind::kFloat;
  int size = 0;          // bytes
  bool swapped = false;  // not in the native byte order

  /// Returns the type in memory; nothing for untyped bytes.
  std::optional<DType> dtype() const;
};

/// Type and layout of a dense array.
struct StoredArray {
  StoredType type = {};
  Shape shape = {};
  bool fortran_order = false;  // the first dimension is contiguous instead of the last

  /// Returns the size of the array in the file. Throws InvalidArgument, with a message that begins
  /// with `place`, if the size does not fit into 63 bits.
  std::int64_t byte_count(const std::string& place) const;
};

/// Converts elements of a file to `type.dtype()` and stores them at `output`. `place` and `first`
/// (the number of preceding elements) are used in the error about a value outside the range of
/// int64.
void decode(const StoredType& type, std::span<const std::byte> input, std::byte* output,
            const std::string& place, std::int64_t first = 0);

/// Buffer for decoded elements in file order, and a tensor that is a view of the buffer.
class DecodedArray {
 public:
  /// Allocates memory for all elements. The array's type must have a dtype().
  explicit DecodedArray(const StoredArray& array);
  std::byte* data() { return static_cast<std::byte*>(elements_->view().data()); }
  TensorRef tensor() const;

 private:
  StoredArray array_;
  std::shared_ptr<Tensor> elements_;
};

/// Returns the tensor stored in `bytes`, whose size must match the array. `owner` keeps the memory
/// alive.
TensorRef tensor_in(const StoredArray& array, std::span<const std::byte> bytes,
                    std::shared_ptr<const void> owner, const std::string& place);

}  // namespace fovea::files
