// SPDX-License-Identifier: Apache-2.0
//
// The workspace of a call: memory from the caller, or memory that is cached per thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "fovea/export.h"

namespace fovea::engine {

/// Alignment in bytes of every part of a workspace.
inline constexpr std::size_t kWorkspaceAlignment = 64;

/// Workspace memory for the duration of one call.
class FOVEA_API Workspace {
 public:
  /// The user of cached memory: a call, or a call that makes other calls. Each has a cache, so that
  /// both find their memory again.
  enum class User : std::uint8_t { kCall, kCallOfCalls };

  /// Takes `bytes` aligned bytes from `given`. If `given` is empty, reuses the memory that this
  /// thread cached after an earlier call, or allocates new memory if the cached memory is too
  /// small. Throws InvalidArgument if `given` is not empty but too small.
  Workspace(std::span<std::byte> given, std::size_t bytes, User user = User::kCall);
  /// Returns owned memory to this thread's cache, unless the cache already holds at least as much.
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  std::byte* data() const { return data_; }

  /// Returns the size to request from a caller, with padding for memory of any alignment.
  static std::size_t bytes_with_alignment(std::size_t bytes);

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  struct Owned {
    std::unique_ptr<std::byte, Free> memory;
    std::size_t bytes = 0;
  };
  /// The cached memory of a thread, by user. Moved out during a call, so that a nested call (from a
  /// progress callback) finds it empty and allocates its own memory.
  struct Kept {
    Owned of[2];
    ~Kept() { ended_ = true; }
  };
  static thread_local Kept kept_;
  // Destructors of static and thread_local objects may call the library after that of kept_.
  static thread_local bool ended_;

  static Owned* kept_for(User user) {
    return ended_ ? nullptr : &kept_.of[static_cast<std::size_t>(user)];
  }

  Owned* kept_here_;  // the one of this thread and user
  Owned owned_;
  std::byte* data_ = nullptr;
};

}  // namespace fovea::engine
