// SPDX-License-Identifier: Apache-2.0
//
// Colours and width (terminal.h).

#include "cli/shell/terminal.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/shell/job.h"

namespace fovea::cli {
namespace {

// Narrower text wraps badly; wider text is hard to read.
constexpr int kMinWidth = 60;
constexpr int kMaxWidth = 160;
constexpr int kDefaultWidth = 100;

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// Returns COLUMNS, or 0 if it is not a positive number.
int columns_from_environment() {
  const std::string_view text = environment("COLUMNS");
  int columns = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), columns);
  if (error != std::errc() || end != text.data() + text.size() || columns < 0) return 0;
  return columns;
}

// Returns whether standard output is a terminal. mpirun gives its processes one, whatever its own
// output is.
bool has_terminal() { return job_size() == 1 && ::isatty(STDOUT_FILENO) != 0; }

// Returns the width of the terminal on standard output, or 0 if there is none.
int columns_of_terminal() {
  winsize size{};
  if (!has_terminal() || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

}  // namespace

scene::Color choose_color(ColorWish wish, bool to_file) {
  if (wish == ColorWish::kNever) return scene::Color::kNone;
  if (wish == ColorWish::kAuto) {
    const bool plain = to_file || !has_terminal() || !environment("NO_COLOR").empty() ||
                       environment("TERM") == "dumb";
    if (plain) return scene::Color::kNone;
  }
  const std::string_view depth = environment("COLORTERM");
  return depth == "truecolor" || depth == "24bit" ? scene::Color::kTrueColor : scene::Color::k256;
}

int choose_width(bool to_file) {
  int columns = columns_from_environment();
  if (columns == 0 && !to_file) columns = columns_of_terminal();
  if (columns == 0) columns = kDefaultWidth;
  return std::clamp(columns, kMinWidth, kMaxWidth);
}

}  // namespace fovea::cli
