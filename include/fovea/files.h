// SPDX-License-Identifier: Apache-2.0
//
// Tensor files: NumPy's .npy and .npz, and .safetensors. docs/files.md documents formats, limits
// and rejected files.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea {

/// The supported file formats.
enum class FileFormat : std::uint8_t { kNpy, kNpz, kSafetensors };

/// Returns "npy", "npz" or "safetensors".
FOVEA_API std::string_view file_format_name(FileFormat format);

/// The description of a tensor in a file.
struct TensorInfo {
  /// Empty for an .npy file, which holds one unnamed tensor.
  std::string name;
  /// The type after reading; nullopt if the tensor cannot be read.
  std::optional<DType> dtype = {};
  /// The type as the file spells it: "<f4", "|u1" or "BF16".
  std::string stored_type = {};
  Shape shape = {};
  /// The uncompressed size of all elements in bytes.
  std::int64_t bytes = 0;
  /// The reason why the tensor cannot be read; `shape` is then unreliable. Empty if the tensor can
  /// be read.
  std::string unreadable = {};
};

/// A tensor file, opened for reading. Cheap to copy; copies share the file.
///
/// Opening  reads the descriptions of all tensors and checks them against the size of the file.
///          Errors in the file's layout are thrown here.
/// Reading  .npy and .safetensors files are memory-mapped. A tensor is a view of the mapping if its
///          elements are aligned, in native byte order and of one of Fovea's types. Otherwise it is
///          copied and converted: integers of other widths to int64, bool (any non-zero byte is
///          true), tensors of an .npz.
/// Lifetime a TensorRef keeps the mapping alive. The file may be closed and deleted, but must not
///          be truncated or modified while mapped: an access beyond the end of a truncated file
///          raises SIGBUS.
/// Threads  re-entrant.
/// Errors   throws IoError if a file cannot be opened or read or is not a regular file, and
///          InvalidArgument if its contents are malformed. The message begins with the file's name.
class FOVEA_API TensorFile {
 public:
  /// Opens a file. The format is detected from the first bytes or, failing that, from the
  /// extension.
  static TensorFile open(const std::string& path);

  /// Opens a file that is already in memory. `bytes` must outlive all tensors read from it.
  /// Messages refer to the file by `name`.
  static TensorFile from_memory(std::span<const std::byte> bytes, FileFormat format,
                                const std::string& name);

  /// Reads one .npy file from standard input until end of file. Memory grows with the number of
  /// bytes received, whatever size the header claims.
  static TensorFile from_standard_input();

  const std::string& path() const;
  FileFormat format() const;
  /// Returns the descriptions in file order.
  const std::vector<TensorInfo>& tensors() const;

  /// Returns the texts beside the tensors, "__metadata__" of a .safetensors file, as (key, text) in
  /// file order; empty for the other formats.
  const std::vector<std::pair<std::string, std::string>>& metadata() const;

  /// Returns the index in `tensors()` of the tensor that `read(name)` returns. Throws
  /// InvalidArgument, listing the existing names, if there is none.
  std::size_t find(std::string_view name) const;

  /// Returns the tensor with this name or, for an empty name, the only tensor. "NAME:bf16", or
  /// "bf16" for an .npy, reads untyped two-byte elements ("<V2") as bfloat16, which is how NumPy
  /// writes ml_dtypes.bfloat16. A tensor with exactly this name takes precedence.
  TensorRef read(std::string_view name = {}) const;

  /// The parsed file (internal).
  class Content;

 private:
  /// An index, and whether elements are interpreted as bfloat16.
  struct Found {
    std::size_t place;
    bool bfloat16;
  };
  explicit TensorFile(std::shared_ptr<const Content> content);
  Found resolve(std::string_view name) const;
  std::shared_ptr<const Content> content_;
};

/// The location of a tensor: a file, and the name within it, which may be empty.
struct TensorSpec {
  std::string path;
  std::string name;
};

/// Parses "FILE" or "FILE:NAME". If the whole text names an existing file, FILE is the whole text.
/// Otherwise FILE is the longest prefix before a colon that names an existing file, so paths may
/// contain colons. If no prefix names a file, FILE ends at the first colon after ".npy", ".npz" or
/// ".safetensors".
FOVEA_API TensorSpec parse_tensor_spec(std::string_view text);

/// Reads the tensor that a spec names; "-" and "-:bf16" read standard input. Throws as TensorFile
/// does.
FOVEA_API TensorRef read_tensor(std::string_view spec);

/// A tensor to write, and its name in the file.
struct NamedTensor {
  std::string name;
  TensorView tensor;
};

/// Writes a file in the format of its extension: .npy (exactly one tensor; its name is ignored),
/// .npz (uncompressed, as numpy.savez writes it) or .safetensors. The path "-" is standard output
/// in .npy format.
///
/// Bytes    equal to those that NumPy and the Python library safetensors write for the same
///          tensors. bfloat16 in .npy and .npz is "<V2", as with ml_dtypes.
/// Memory   a small buffer: tensors with any strides are written without copying them as a whole.
/// Errors   throws InvalidArgument, before anything is written, if the extension is unknown, if the
///          format does not allow a name or the number of tensors, or if a tensor is undefined;
///          OutputError if the file cannot be written. An existing file is replaced atomically or
///          left unchanged.
FOVEA_API void write_tensors(const std::string& path, std::span<const NamedTensor> tensors);

/// Writes one tensor, under this name in .npz and .safetensors files.
FOVEA_API void write_tensor(const std::string& path, const TensorView& tensor,
                            const std::string& name = "tensor");

/// Removes the temporary files of outputs that are currently being written. Safe to call in the
/// handler of a signal that ends the process.
FOVEA_API void remove_temporary_files() noexcept;

}  // namespace fovea
