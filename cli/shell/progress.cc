// SPDX-License-Identifier: Apache-2.0
//
// The progress line (progress.h).

#include "cli/shell/progress.h"

#include <cstdlib>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/shell/message.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

// Moves the cursor to the start of the line and erases to its end.
constexpr std::string_view kEraseLine = "\r\x1b[K";
// A longer line would wrap, and only its last part would be erased.
constexpr int kColumns = 79;

}  // namespace

Progress::Progress() {
  const char* term = std::getenv("TERM");
  terminal_ = !is_silent() && ::isatty(STDERR_FILENO) != 0 && term != nullptr &&
              std::string_view(term) != "dumb";
}

void Progress::show(std::string_view text) {
  if (!terminal_) return;
  write_stderr(fmt::format("{}{}", kEraseLine, fit(text, kColumns)));
  shown_ = true;
}

void Progress::clear() {
  if (shown_) write_stderr(kEraseLine);
  shown_ = false;
}

}  // namespace fovea::cli
