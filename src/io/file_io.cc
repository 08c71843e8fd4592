// SPDX-License-Identifier: Apache-2.0
//
// Reads whole files through stdio (file_io.h): scenes are small, and stdio preserves errno for the
// error message.

#include "io/file_io.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include <fmt/format.h>

#include "fovea/error.h"

namespace fovea {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

std::string error_text() { return std::generic_category().message(errno); }

}  // namespace

std::string read_file(const std::string& path, std::int64_t most) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw IoError(fmt::format("{}: expected a file, got a directory", path));
  }
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (!file) throw IoError(fmt::format("{}: cannot be read: {}", path, error_text()));
  std::string content;
  char buffer[1 << 13];  // fits on a small stack
  while (true) {
    const std::size_t count = std::fread(buffer, 1, sizeof(buffer), file.get());
    content.append(buffer, count);
    if (static_cast<std::int64_t>(content.size()) > most) {
      throw IoError(fmt::format("{}: expected at most {} bytes, got more", path, most));
    }
    if (count < sizeof(buffer)) break;
  }
  if (std::ferror(file.get()) != 0) {
    throw IoError(fmt::format("{}: cannot be read: {}", path, error_text()));
  }
  return content;
}

}  // namespace fovea
