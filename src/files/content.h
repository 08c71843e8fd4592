// SPDX-License-Identifier: Apache-2.0
//
// What stands behind a TensorFile: one class per format.

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

  /// The place of the tensor called exactly that; nothing where there is none.
  std::optional<std::size_t> place_of(std::string_view name) const;

  /// The tensor at that place, which can be read; with `bfloat16`, one of two bytes without a type.
  /// Safe to call from several threads.
  virtual TensorRef read(std::size_t place, bool bfloat16) const = 0;

  /// "model.npz: query", for messages.
  std::string name_of(std::size_t place) const;

 private:
  std::string path_;
  FileFormat format_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, std::size_t> places_;
};

namespace files {

using ContentRef = std::shared_ptr<const TensorFile::Content>;

/// Each throws InvalidArgument, beginning with `path`, for what is wrong with the bytes.
ContentRef open_npy(FileBytes file, const std::string& path);
ContentRef open_npz(FileBytes file, const std::string& path);
ContentRef open_safetensors(FileBytes file, const std::string& path);

/// The bytes of one .npy file from standard input.
FileBytes read_standard_input(const std::string& name);

/// A foreign name as messages show it: visible, and not too long.
std::string shown_name(std::string_view name);

/// Why elements of two bytes without a type cannot be read, unless somebody says what they are.
inline constexpr std::string_view kUntyped =
    "elements are two bytes without a type (<V2), which is how NumPy writes bfloat16; if that is "
    "what they are, say so by :bf16 after the name";

}  // namespace files
}  // namespace fovea
