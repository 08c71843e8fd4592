// SPDX-License-Identifier: Apache-2.0
//
// Validates tensors before any file is opened, and writes .npy files (fovea/files.h).

#include "files/write.h"

#include <limits>
#include <string>
#include <unordered_set>

#include <fmt/format.h>

#include "fovea/error.h"

#include "core/fail.h"
#include "files/content.h"
#include "files/file_format.h"
#include "files/npy_header.h"
#include "files/pieces.h"
#include "text/text_width.h"

namespace fovea {
namespace {

/// Throws for a name that the format cannot store or that could not be read back.
void check_name(FileFormat format, const std::string& name, const std::string& path) {
  constexpr std::size_t kMaxInZip = std::numeric_limits<std::uint16_t>::max() - 4;  // ".npy"
  const std::string shown = files::shown_name(name);
  if (name.empty()) fail_at(path, "expected a name for each tensor, got an empty one");
  if (!is_utf8(name) || name.find('\0') != std::string::npos) {
    fail_at(path, fmt::format("expected a name in UTF-8 without zeros, got \"{}\"", shown));
  }
  if (format == FileFormat::kNpz && name.size() > kMaxInZip) {
    fail_at(path,
            fmt::format("expected names of at most {} bytes, got {}", kMaxInZip, name.size()));
  }
  if (format == FileFormat::kSafetensors && name == "__metadata__") {
    fail_at(path,
            "expected the name of a tensor, got \"__metadata__\", which means something else");
  }
}

void check_tensors(FileFormat format, std::span<const NamedTensor> tensors,
                   const std::string& path) {
  if (format == FileFormat::kNpy && tensors.size() != 1) {
    fail_at(path, fmt::format("expected one tensor, which is what .npy holds, got {}; .npz and "
                              ".safetensors hold any number",
                              tensors.size()));
  }
  std::unordered_set<std::string_view> names;
  for (const NamedTensor& tensor : tensors) {
    if (!tensor.tensor.defined() || (tensor.tensor.data() == nullptr && tensor.tensor.size() > 0)) {
      fail_at(path, fmt::format("expected a tensor, got an undefined one as \"{}\"",
                                files::shown_name(tensor.name)));
    }
    if (format == FileFormat::kNpy) continue;
    check_name(format, tensor.name, path);
    if (!names.insert(tensor.name).second) {
      fail_at(path, fmt::format("expected different names, got \"{}\" twice",
                                files::shown_name(tensor.name)));
    }
  }
}

}  // namespace

void write_tensors(const std::string& path, std::span<const NamedTensor> tensors) {
  const bool to_stdout = path == "-";
  const auto format = to_stdout ? FileFormat::kNpy : files::format_by_ending(path);
  if (!format) {
    fail_at(path,
            "expected a name that ends in .npy, .npz or .safetensors, which is the format that "
            "is written");
  }
  check_tensors(*format, tensors, to_stdout ? "standard output" : path);
  OutputFile file = to_stdout ? OutputFile::standard_output() : OutputFile(path);
  switch (*format) {
    case FileFormat::kNpy:
      files::write_npy(file, tensors.front().tensor);
      break;
    case FileFormat::kNpz:
      files::write_npz(file, tensors);
      break;
    case FileFormat::kSafetensors:
      files::write_safetensors(file, tensors);
      break;
  }
  file.finish();
}

void write_tensor(const std::string& path, const TensorView& tensor, const std::string& name) {
  const NamedTensor one = {name, tensor};
  write_tensors(path, std::span(&one, 1));
}

namespace files {

void write_npy(OutputFile& file, const TensorView& tensor) {
  file.write(npy_header_text(tensor.dtype(), tensor.shape()));
  for_each_piece(tensor, [&](std::span<const std::byte> piece) { file.write(piece); });
}

}  // namespace files
}  // namespace fovea
