// SPDX-License-Identifier: Apache-2.0
//
// The header of an .npy file: six bytes of magic, a version, a length, and a Python literal, as in
//
//   {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
//
// It is parsed as just that, never evaluated.

#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "fovea/files.h"

#include "files/elements.h"

namespace fovea::files {

inline constexpr std::string_view kNpyMagic = "\x93NUMPY";
/// Magic, version and length take at most this many bytes.
inline constexpr std::size_t kNpyPrefix = 12;

struct NpyHeader {
  StoredArray array;
  /// The type as the header has it, for people.
  std::string descr;
  /// Why Fovea cannot read what follows; then `array` is not known. Empty where it can.
  std::string unreadable = {};
  /// Bytes before the first element, and of all elements.
  std::size_t end = 0;
  std::int64_t byte_count = 0;
};

/// Where the header ends, from the first kNpyPrefix bytes of a file, or all where it has fewer.
/// Throws InvalidArgument, beginning with `place`.
std::size_t npy_header_end(std::span<const std::byte> prefix, const std::string& place);

/// The header in the first bytes of a file, which are at least as many as npy_header_end says.
NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& place);

/// The first `end` bytes of a file that is expected to hold them. Throws InvalidArgument when it
/// is cut short.
std::span<const std::byte> npy_header_bytes(std::span<const std::byte> file,
                                            const std::string& place);

/// What a header says, as a TensorFile tells it.
TensorInfo tensor_info(const std::string& name, const NpyHeader& header);

/// The header that NumPy writes for such a tensor, row by row.
std::string npy_header_text(DType dtype, const Shape& shape);

}  // namespace fovea::files
