// SPDX-License-Identifier: Apache-2.0
//
// The implementation of TensorFile: one class per format.

#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "fovea/files.h"

#include "io/mapped_file.h"

namespace fovea {

class TensorFile::Content {
 public:
  Content(std::string path, FileFormat format, std::vector<TensorInfo> tensors);
  virtual ~Content() = default;
  Content(const Content&) = delete;
  Content& operator=(const Content&) = delete;

  const std::string& path() const { return path_; }
  FileFormat format() const { return format_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::vector<std::pair<std::string, std::string>>& metadata() const { return metadata_; }

  /// Returns the index of the tensor with exactly this name, if there is one.
  std::optional<std::size_t> place_of(std::string_view name) const;

  /// Returns the tensor at index `place`. The tensor must be readable. If `bfloat16` is set,
  /// untyped two-byte elements are interpreted as bfloat16. Thread-safe.
  virtual TensorRef read(std::size_t place, bool bfloat16) const = 0;

  /// Returns "model.npz: query", for messages.
  std::string name_of(std::size_t place) const;

 protected:
  std::vector<std::pair<std::string, std::string>> metadata_;

 private:
  std::string path_;
  FileFormat format_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, std::size_t> places_;
};

namespace files {

using ContentRef = std::shared_ptr<const TensorFile::Content>;

/// Open a file of one format. Throw InvalidArgument, with a message that begins with `path`, if the
/// bytes are malformed.
ContentRef open_npy(FileBytes file, const std::string& path);
ContentRef open_npz(FileBytes file, const std::string& path);
ContentRef open_safetensors(FileBytes file, const std::string& path);

/// Reads one .npy file from standard input.
FileBytes read_standard_input(const std::string& name);

/// Returns a tensor name for messages: escaped and truncated.
std::string shown_name(std::string_view name);

/// Error text for untyped two-byte elements, which cannot be read unless the caller names the type.
inline constexpr std::string_view kUntyped =
    "elements are two bytes without a type (<V2), which is how NumPy writes bfloat16; if that is "
    "what they are, say so by :bf16 after the name";

}  // namespace files
}  // namespace fovea
