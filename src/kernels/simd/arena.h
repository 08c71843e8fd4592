// SPDX-License-Identifier: Apache-2.0
//
// An allocator for the parts of a scratch buffer. The same sequence of calls computes the total
// size (without memory) and the addresses (with memory).

#pragma once

#include <cstddef>
#include <cstdint>

namespace fovea::kernels {

/// Allocates consecutive parts, each aligned to a cache line. If `base` is null, only the size is
/// counted, and the addresses are meaningless.
class Arena {
 public:
  explicit Arena(std::byte* base) : base_(reinterpret_cast<std::uintptr_t>(base)), end_(base_) {}

  template <class T>
  T* take(std::int64_t count) {
    const std::uintptr_t here = end_;
    end_ += (static_cast<std::size_t>(count) * sizeof(T) + kLine - 1) / kLine * kLine;
    return reinterpret_cast<T*>(here);
  }
  std::size_t used() const { return end_ - base_; }

 private:
  static constexpr std::size_t kLine = 64;
  std::uintptr_t base_;
  std::uintptr_t end_;
};

}  // namespace fovea::kernels
