// SPDX-License-Identifier: Apache-2.0
//
// The memory that a call computes in: the caller's, or one that the calling thread keeps.

#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "fovea/export.h"

namespace fovea::engine {

/// Every part of a workspace begins at a multiple of this.
inline constexpr std::size_t kWorkspaceAlignment = 64;

/// Memory for the time of one call.
class FOVEA_API Workspace {
 public:
  /// `bytes` from `given`, aligned, if that is not empty; else from what this thread kept of an
  /// earlier call, else new. Throws InvalidArgument when `given` is too small.
  Workspace(std::span<std::byte> given, std::size_t bytes);
  /// Keeps its own memory for this thread's next call.
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  std::byte* data() const { return data_; }

  /// The bytes to ask a caller for, who may give memory of any alignment.
  static std::size_t bytes_with_alignment(std::size_t bytes);

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  struct Owned {
    std::unique_ptr<std::byte, Free> memory;
    std::size_t bytes = 0;
  };
  // Taken out during a call, so that a call within a call (from a progress callback) finds nothing
  // here and takes its own.
  static thread_local Owned kept_;

  Owned owned_;
  std::byte* data_ = nullptr;
};

}  // namespace fovea::engine
