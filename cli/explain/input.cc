// SPDX-License-Identifier: Apache-2.0
//
// Scenes from standard input and from files (input.h).

#include "cli/explain/input.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "fovea/error.h"

#include "core/fail.h"

namespace fovea::cli {
namespace {

std::string read_stdin() {
  constexpr auto kLimit = static_cast<std::size_t>(scene::kMaxFileBytes);
  std::string text;
  std::array<char, 1 << 16> block{};
  while (true) {
    const ssize_t size = ::read(STDIN_FILENO, block.data(), block.size());
    if (size == 0) return text;
    if (size < 0) {
      if (errno == EINTR) continue;
      throw IoError(fmt::format("standard input: cannot be read: {}", std::strerror(errno)));
    }
    text.append(block.data(), static_cast<std::size_t>(size));
    // Checked in the loop, so that an endless input is rejected.
    if (text.size() > kLimit) {
      fail("standard input: expected at most {} bytes, got more", kLimit);
    }
  }
}

}  // namespace

scene::Scene load_scene_from_stdin() {
  const std::string text = read_stdin();
  try {
    return scene::parse_scene(text);
  } catch (const InvalidArgument& error) {
    fail("standard input: {}", error.what());
  }
}

scene::Scene load_scene_from_file(const std::string& path) {
  std::error_code unknown;
  const bool sentence =
      path.find('/') == std::string::npos &&
      (path.find('.') == std::string::npos || path.find(' ') != std::string::npos);
  if (!sentence || std::filesystem::exists(path, unknown)) return scene::load_scene(path);
  throw IoError(fmt::format(
      "{0}: there is no such file; to explain a sentence: fovea explain --text \"{0}\"", path));
}

}  // namespace fovea::cli
