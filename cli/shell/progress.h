// SPDX-License-Identifier: Apache-2.0
//
// One line on the terminal at standard error that says how far a long run is. Where standard error
// is no terminal there is nothing to see.

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
  /// Takes it away, before something else is written.
  void clear();

 private:
  bool terminal_;
  bool shown_ = false;
};

}  // namespace fovea::cli
