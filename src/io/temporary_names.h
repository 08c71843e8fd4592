// SPDX-License-Identifier: Apache-2.0
//
// The current temporary files of this process, so that a signal handler can delete them
// (remove_temporary_files in fovea/files.h).

#pragma once

#include <array>
#include <atomic>
#include <climits>
#include <string>

namespace fovea {

/// Registration of a temporary file: while this object exists, a signal handler deletes `path`. The
/// object is created before the file and destroyed after the file has been deleted or renamed, so
/// that no signal can leave the file behind. A name without a file is harmless.
class TemporaryName {
 public:
  TemporaryName() = default;
  ~TemporaryName() { forget(); }
  TemporaryName(const TemporaryName&) = delete;
  TemporaryName& operator=(const TemporaryName&) = delete;

  /// Replaces the name. The name is not registered if all slots are in use or if it is longer than
  /// PATH_MAX allows.
  void keep(const std::string& path);
  void forget();

  /// Entry of the list. A signal handler reads `path` only while `state` is kKept.
  struct Slot {
    enum State : int { kFree, kTaken, kKept };
    std::atomic<int> state = kFree;
    std::array<char, PATH_MAX> path = {};
  };

 private:
  Slot* slot_ = nullptr;
};

}  // namespace fovea
