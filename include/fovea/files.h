// SPDX-License-Identifier: Apache-2.0
//
// Tensors in files: NumPy's .npy and .npz, and .safetensors. docs/files.md has the formats, the
// limits and what is refused.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea {

enum class FileFormat : std::uint8_t { kNpy, kNpz, kSafetensors };

/// "npy", "npz" or "safetensors".
FOVEA_API std::string_view file_format_name(FileFormat format);

/// What a file says of one of its tensors.
struct TensorInfo {
  /// Empty in a .npy file, which holds one tensor without a name.
  std::string name;
  /// The type that it is read as; absent where it cannot be read.
  std::optional<DType> dtype = {};
  /// The type as the file has it: "<f4", "|u1" or "BF16".
  std::string stored_type = {};
  Shape shape = {};
  /// Bytes of its elements as they are stored, uncompressed.
  std::int64_t bytes = 0;
  /// Why it cannot be read; empty where it can. Its shape is then not known for certain.
  std::string unreadable = {};
};

/// A file of tensors, opened to be read. Cheap to copy; copies share the file.
///
/// Opening  reads what the file says of its tensors, and checks that against its size. Whatever is
///          wrong with the layout of the file is said here, for all tensors at once.
/// Reading  .npy and .safetensors are mapped into memory, and a tensor is a view of the mapping
///          wherever its elements are aligned and of a type of Fovea's in the byte order of this
///          machine. All else is copied and converted: integers of other widths to int64, bool
///          (of which any byte but 0 is true), tensors of an .npz.
/// Lifetime a TensorRef keeps what it looks at; the file may be closed and deleted, but must not be
///          shortened or changed meanwhile: the system ends a process that reads beyond the end of
///          a mapped file by SIGBUS.
/// Threads  re-entrant.
/// Errors   throws IoError for a file that cannot be opened or read or is not a regular file, and
///          InvalidArgument for what it holds. The message begins with the file's name.
class FOVEA_API TensorFile {
 public:
  /// The format follows from the first bytes; where these do not tell, from the name's ending.
  static TensorFile open(const std::string& path);

  /// A file that is in memory already and stays there as long as anything read from it. `name` is
  /// what messages call it.
  static TensorFile from_memory(std::span<const std::byte> bytes, FileFormat format,
                                const std::string& name);

  /// One .npy from standard input, to its end. Memory grows with what arrives, whatever the header
  /// says.
  static TensorFile from_standard_input();

  const std::string& path() const;
  FileFormat format() const;
  /// In the order of the file.
  const std::vector<TensorInfo>& tensors() const;

  /// The place in `tensors()` of what `read` reads. Throws InvalidArgument, with the names that are
  /// there, when there is no such one.
  std::size_t find(std::string_view name) const;

  /// The tensor with this name, or, for an empty name, the only one. "NAME:bf16", or "bf16" of an
  /// .npy, reads elements of two bytes without a type ("<V2") as bfloat16, for that is how NumPy
  /// writes ml_dtypes.bfloat16; a tensor whose name is exactly that comes first.
  TensorRef read(std::string_view name = {}) const;

  /// What `read` makes of a file.
  class Content;

 private:
  /// A place, and whether its elements are to be taken for bfloat16.
  struct Found {
    std::size_t place;
    bool bfloat16;
  };
  explicit TensorFile(std::shared_ptr<const Content> content);
  Found resolve(std::string_view name) const;
  std::shared_ptr<const Content> content_;
};

/// A tensor's place: a file, and a name in it, which may be empty.
struct TensorSpec {
  std::string path;
  std::string name;
};

/// "FILE" or "FILE:NAME". A file that exists under all of the text wins; else the longest part
/// before a colon that names a file does, so that folders may have colons in their names. Where no
/// part does, the file ends at the first colon after ".npy", ".npz" or ".safetensors".
FOVEA_API TensorSpec parse_tensor_spec(std::string_view text);

/// The tensor that a spec names, or, for "-" and "-:bf16", the one on standard input. Throws as
/// TensorFile does.
FOVEA_API TensorRef read_tensor(std::string_view spec);

/// A tensor to be written, under its name.
struct NamedTensor {
  std::string name;
  TensorView tensor;
};

/// Writes a file in the format that its ending says: .npy (exactly one tensor, whose name is
/// ignored), .npz (not compressed, as numpy.savez writes it) or .safetensors. The path "-" is
/// standard output, in the format .npy.
///
/// Bytes    those of NumPy and of the Python library safetensors, for the same tensors. bfloat16 in
///          .npy and .npz is "<V2", as ml_dtypes has it.
/// Memory   that of a small buffer: tensors are written from where they are, whatever their
///          strides.
/// Errors   throws InvalidArgument, before anything is written, for an ending, a name or a number
///          of tensors that the format does not have, and for absent tensors; OutputError when the
///          file cannot be written. An existing file is replaced in one step or stays as it was.
FOVEA_API void write_tensors(const std::string& path, std::span<const NamedTensor> tensors);

/// The same for one tensor, which in .npz and .safetensors gets this name.
FOVEA_API void write_tensor(const std::string& path, const TensorView& tensor,
                            const std::string& name = "tensor");

/// Removes the files that are being written at this moment. For the handler of a signal that ends
/// the process: it may be called there.
FOVEA_API void remove_temporary_files() noexcept;

}  // namespace fovea
