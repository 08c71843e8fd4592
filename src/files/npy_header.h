// SPDX-License-Identifier: Apache-2.0
//
// The header of an .npy file: six magic bytes, a version, a length, and a Python literal such as
//
//   {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
//
// The literal is parsed, never evaluated.

#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "fovea/files.h"

#include "files/elements.h"

namespace fovea::files {

inline constexpr std::string_view kNpyMagic = "\x93NUMPY";
/// Maximum size of magic, version and length, in bytes.
inline constexpr std::size_t kNpyPrefix = 12;

struct NpyHeader {
  StoredArray array;
  /// The type as written in the header, for display.
  std::string descr;
  /// The reason why Fovea cannot read the elements; empty if it can. `array` is valid only if
  /// `unreadable` is empty.
  std::string unreadable = {};
  /// Offset of the first element, and total size of the elements, in bytes.
  std::size_t end = 0;
  std::int64_t byte_count = 0;
};

/// Returns the offset of the end of the header. `prefix` is the first kNpyPrefix bytes of the file,
/// or the whole file if it is shorter. Throws InvalidArgument with a message that begins with
/// `place`.
std::size_t npy_header_end(std::span<const std::byte> prefix, const std::string& place);

/// Parses the header. `bytes` must reach at least to the offset that npy_header_end() returns.
NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& place);

/// Returns the bytes of the header of `file`. Throws InvalidArgument if the file is truncated.
std::span<const std::byte> npy_header_bytes(std::span<const std::byte> file,
                                            const std::string& place);

/// Converts a header to the TensorInfo of a TensorFile.
TensorInfo tensor_info(const std::string& name, const NpyHeader& header);

/// Returns the header that NumPy writes for a C-order array of this type and shape.
std::string npy_header_text(DType dtype, const Shape& shape);

}  // namespace fovea::files
