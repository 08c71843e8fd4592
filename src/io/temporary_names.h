// SPDX-License-Identifier: Apache-2.0
//
// The temporary files that this process has at the moment, so that a handler of signals can remove
// them (remove_temporary_files in fovea/files.h).

#pragma once

#include <array>
#include <atomic>
#include <climits>
#include <string>

namespace fovea {

/// While one lives, a signal removes the file `path`. Made before the file is, and ended after the
/// file is gone or has another name, so that there is no moment in which a file would stay; a name
/// without a file does no harm.
class TemporaryName {
 public:
  TemporaryName() = default;
  ~TemporaryName() { forget(); }
  TemporaryName(const TemporaryName&) = delete;
  TemporaryName& operator=(const TemporaryName&) = delete;

  /// Replaces the name. Where more files than there is room for are written at the same time, or a
  /// name is longer than a file's can be, it is not kept.
  void keep(const std::string& path);
  void forget();

  /// A place in the list. The handler of a signal reads `path` only while `state` is kKept.
  struct Slot {
    enum State : int { kFree, kTaken, kKept };
    std::atomic<int> state = kFree;
    std::array<char, PATH_MAX> path = {};
  };

 private:
  Slot* slot_ = nullptr;
};

}  // namespace fovea
