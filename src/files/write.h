// SPDX-License-Identifier: Apache-2.0
//
// The writers, one per format. The caller has checked the number of tensors and their names. Also
// the header of a .safetensors file, for code that writes the elements itself.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "fovea/export.h"
#include "fovea/files.h"

#include "io/output_file.h"

namespace fovea::files {

void write_npy(OutputFile& file, const TensorView& tensor);
void write_npz(OutputFile& file, std::span<const NamedTensor> tensors);
void write_safetensors(OutputFile& file, std::span<const NamedTensor> tensors);

/// A tensor in a .safetensors header. Offsets are relative to the end of the header.
struct SafetensorsEntry {
  std::string name;
  std::string_view dtype;  ///< "F32", "I64", "U8"
  Shape shape;
  std::uint64_t begin = 0, end = 0;
};

/// Returns the name of a type in headers.
FOVEA_API std::string_view safetensors_dtype(DType dtype);

/// Returns the header with its length in front, padded with spaces to a multiple of 8 and to at
/// least `bytes`. Exported for the library of recordings.
FOVEA_API std::string safetensors_header(
    std::span<const SafetensorsEntry> entries,
    std::span<const std::pair<std::string, std::string>> metadata = {}, std::size_t bytes = 0);

}  // namespace fovea::files
