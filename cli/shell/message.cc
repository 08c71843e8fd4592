// SPDX-License-Identifier: Apache-2.0
//
// Messages on standard error (message.h).

#include "cli/shell/message.h"

#include <cerrno>
#include <cstddef>

#include <unistd.h>

#include "text/text_width.h"

namespace fovea::cli {

void write_stderr(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void print_error(std::string_view message) noexcept {
  try {
    write_stderr("fovea: " + visible(message) + "\n");
  } catch (const std::exception&) {
    write_stderr("fovea: out of memory\n");
  }
}

}  // namespace fovea::cli
