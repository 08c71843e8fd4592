// SPDX-License-Identifier: Apache-2.0
//
// Parses "FILE:NAME". Either part may contain a colon, so the split depends on which files exist.

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <system_error>
#include <utility>

#include "fovea/files.h"

#include "files/file_format.h"

namespace fovea {
namespace {

constexpr std::array kEndings = {
    std::pair{std::string_view(".npy"), FileFormat::kNpy},
    std::pair{std::string_view(".npz"), FileFormat::kNpz},
    std::pair{std::string_view(".safetensors"), FileFormat::kSafetensors}};

bool is_file(std::string_view path) {
  std::error_code error;
  const auto status = std::filesystem::status(std::filesystem::path(path), error);
  return std::filesystem::exists(status) && !std::filesystem::is_directory(status);
}

TensorSpec split(std::string_view text, std::size_t colon) {
  return {std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
}

}  // namespace

TensorSpec parse_tensor_spec(std::string_view text) {
  constexpr auto kNone = std::string_view::npos;
  if (is_file(text)) return {std::string(text), ""};
  for (std::size_t colon = text.rfind(':'); colon != kNone && colon > 0;
       colon = text.rfind(':', colon - 1)) {
    if (is_file(text.substr(0, colon))) return split(text, colon);
  }
  for (std::size_t colon = text.find(':'); colon != kNone; colon = text.find(':', colon + 1)) {
    if (files::format_by_ending(text.substr(0, colon))) return split(text, colon);
  }
  return {std::string(text), ""};
}

TensorRef read_tensor(std::string_view spec) {
  if (spec == "-") return TensorFile::from_standard_input().read();
  if (spec.starts_with("-:")) return TensorFile::from_standard_input().read(spec.substr(2));
  const TensorSpec place = parse_tensor_spec(spec);
  return TensorFile::open(place.path).read(place.name);
}

namespace files {

std::optional<FileFormat> format_by_ending(std::string_view path) {
  for (const auto& [ending, format] : kEndings) {
    const std::string_view last = path.substr(path.size() - std::min(path.size(), ending.size()));
    if (std::equal(last.begin(), last.end(), ending.begin(), ending.end(), [](char a, char b) {
          return std::tolower(static_cast<unsigned char>(a)) == b;
        })) {
      return format;
    }
  }
  return std::nullopt;
}

}  // namespace files
}  // namespace fovea
