// SPDX-License-Identifier: Apache-2.0
//
// Error messages (message.h).

#include "cli/shell/message.h"

#include <cerrno>
#include <cstddef>

#include <unistd.h>

#include "text/text_width.h"

namespace fovea::cli {
namespace {

const char* program_name = "fovea";
bool silent = false;
bool wrong_usage = false;

std::string& unprinted() {
  static std::string message;
  return message;
}

}  // namespace

void name_program(const char* name) noexcept { program_name = name; }

void write_stderr(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void silence() noexcept { silent = true; }
bool is_silent() noexcept { return silent; }
const std::string& last_error() noexcept { return unprinted(); }

void print_usage_error(std::string_view message) noexcept {
  wrong_usage = true;
  print_error(message);
}
bool usage_was_wrong() noexcept { return wrong_usage; }

void print_error(std::string_view message) noexcept {
  try {
    if (silent) {
      unprinted() = visible(message);
      return;
    }
    write_stderr(std::string(program_name) + ": " + visible(message) + "\n");
  } catch (const std::exception&) {
    print_error_in_handler("out of memory");
  }
}

void print_error_in_handler(std::string_view message) noexcept {
  write_stderr(program_name);
  write_stderr(": ");
  write_stderr(message);
  write_stderr("\n");
}

}  // namespace fovea::cli
