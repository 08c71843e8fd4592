// SPDX-License-Identifier: Apache-2.0
//
// Detection of file formats and lookup of tensor names (fovea/files.h).

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/fail.h"
#include "files/content.h"
#include "files/file_format.h"
#include "files/npy_header.h"
#include "text/nearest.h"
#include "text/text_width.h"

namespace fovea {

using files::ContentRef;
using files::shown_name;

namespace {

constexpr std::string_view kAsBFloat16 = ":bf16";
constexpr std::string_view kStandardInput = "standard input";

ContentRef open_as(FileFormat format, FileBytes file, const std::string& path) {
  switch (format) {
    case FileFormat::kNpy:
      return files::open_npy(std::move(file), path);
    case FileFormat::kNpz:
      return files::open_npz(std::move(file), path);
    case FileFormat::kSafetensors:
      break;
  }
  return files::open_safetensors(std::move(file), path);
}

FileFormat format_of(std::span<const std::byte> bytes, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              std::min<std::size_t>(bytes.size(), 16));
  if (text.starts_with(files::kNpyMagic)) return FileFormat::kNpy;
  // Signatures of a zip member and of the end of an empty archive.
  if (text.starts_with("PK\x03\x04") || text.starts_with("PK\x05\x06")) return FileFormat::kNpz;
  if (const auto format = files::format_by_ending(path)) return *format;
  if (text.size() > 8 && text[8] == '{') return FileFormat::kSafetensors;
  fail("{}: expected an .npy, .npz or .safetensors file, got {}", path,
       text.empty() ? "an empty file" : fmt::format("one that begins with \"{}\"", visible(text)));
}

/// Lists the names in a file, truncated after the first few.
std::string known_names(const std::vector<TensorInfo>& tensors) {
  constexpr std::size_t kMax = 10;
  std::vector<std::string> names;
  for (const TensorInfo& tensor : tensors) {
    if (names.size() == kMax) break;
    names.push_back(shown_name(tensor.name));
  }
  const std::size_t more = tensors.size() - names.size();
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

std::string slip(std::string_view name, const std::vector<TensorInfo>& tensors) {
  constexpr std::size_t kMax = 1000;  // bounds the cost of the edit distances
  std::vector<std::string> names;
  for (const TensorInfo& tensor : tensors) {
    if (names.size() == kMax) break;
    names.push_back(tensor.name);
  }
  return did_you_mean(name, names);
}

}  // namespace

std::string_view file_format_name(FileFormat format) {
  switch (format) {
    case FileFormat::kNpy:
      return "npy";
    case FileFormat::kNpz:
      return "npz";
    case FileFormat::kSafetensors:
      return "safetensors";
  }
  return "unknown";
}

TensorFile::Content::Content(std::string path, FileFormat format, std::vector<TensorInfo> tensors)
    : path_(std::move(path)), format_(format), tensors_(std::move(tensors)) {
  for (std::size_t place = 0; place < tensors_.size(); ++place) {
    const std::string& name = tensors_[place].name;
    if (!places_.emplace(name, place).second) {
      fail("{}: the name \"{}\" occurs twice", path_, shown_name(name));
    }
  }
}

std::optional<std::size_t> TensorFile::Content::place_of(std::string_view name) const {
  const auto found = places_.find(std::string(name));
  return found == places_.end() ? std::nullopt : std::optional(found->second);
}

std::string TensorFile::Content::name_of(std::size_t place) const {
  const std::string& name = tensors_[place].name;
  return name.empty() ? path_ : fmt::format("{}: {}", path_, shown_name(name));
}

TensorFile::TensorFile(std::shared_ptr<const Content> content) : content_(std::move(content)) {}

TensorFile TensorFile::open(const std::string& path) {
  FileBytes file = map_file(path);
  const FileFormat format = format_of(file.bytes, path);
  return TensorFile(open_as(format, std::move(file), path));
}

TensorFile TensorFile::from_memory(std::span<const std::byte> bytes, FileFormat format,
                                   const std::string& name) {
  return TensorFile(open_as(format, {bytes, nullptr}, name));
}

TensorFile TensorFile::from_standard_input() {
  const std::string name(kStandardInput);
  return TensorFile(files::open_npy(files::read_standard_input(name), name));
}

const std::string& TensorFile::path() const { return content_->path(); }
FileFormat TensorFile::format() const { return content_->format(); }
const std::vector<std::pair<std::string, std::string>>& TensorFile::metadata() const {
  return content_->metadata();
}

const std::vector<TensorInfo>& TensorFile::tensors() const { return content_->tensors(); }

TensorFile::Found TensorFile::resolve(std::string_view name) const {
  if (const auto place = content_->place_of(name)) return {*place, false};
  const bool bare = format() == FileFormat::kNpy && name == kAsBFloat16.substr(1);
  const bool bfloat16 = bare || name.ends_with(kAsBFloat16);
  if (bfloat16) name.remove_suffix(bare ? name.size() : kAsBFloat16.size());
  if (const auto place = content_->place_of(name)) return {*place, bfloat16};
  if (tensors().empty()) {
    fail("{}: expected a tensor, got a file without any", path());
  }
  if (format() == FileFormat::kNpy) {
    fail(
        "{}: expected no name, or bf16, since an .npy file has one tensor without a "
        "name; got \"{}\"",
        path(), shown_name(name));
  }
  if (!name.empty()) {
    fail("{}: no tensor is called \"{}\"{}; there {}: {}", path(), shown_name(name),
         slip(name, tensors()), tensors().size() == 1 ? "is" : "are", known_names(tensors()));
  }
  if (tensors().size() == 1) return {0, bfloat16};
  fail("{}: expected the name of one of its {} tensors, as in FILE:{}; there are: {}", path(),
       tensors().size(), shown_name(tensors().front().name), known_names(tensors()));
}

std::size_t TensorFile::find(std::string_view name) const { return resolve(name).place; }

TensorRef TensorFile::read(std::string_view name) const {
  const auto [place, bfloat16] = resolve(name);
  const TensorInfo& info = tensors()[place];
  if (bfloat16 && info.unreadable != files::kUntyped) {
    fail(
        "{}: expected elements of two bytes without a type (<V2), because of :bf16, "
        "got {}",
        content_->name_of(place), shown_name(info.stored_type));
  }
  if (!bfloat16 && !info.unreadable.empty()) {
    fail("{}: cannot be read: {}", content_->name_of(place), info.unreadable);
  }
  return content_->read(place, bfloat16);
}

namespace files {

std::string shown_name(std::string_view name) {
  constexpr int kColumns = 60;
  // Truncated before escaping, because the name may be megabytes long.
  return fit(visible(name.substr(0, 256)), kColumns);
}

}  // namespace files
}  // namespace fovea
