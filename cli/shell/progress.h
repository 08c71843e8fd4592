// SPDX-License-Identifier: Apache-2.0
//
// A progress line on standard error for long runs; shown only if standard error is a terminal.

#pragma once

#include <string_view>

namespace fovea::cli {

class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Replaces the line.
  void show(std::string_view text);
  /// Erases the line. Must be called before other output.
  void clear();

 private:
  bool terminal_;
  bool shown_ = false;
};

}  // namespace fovea::cli
