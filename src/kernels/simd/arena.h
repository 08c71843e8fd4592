// SPDX-License-Identifier: Apache-2.0
//
// An allocator for the parts of a scratch buffer. The same sequence of calls computes the total
// size (without memory) and the addresses (with memory).

#pragma once

#include <cstddef>
#include <cstdint>

namespace fovea::kernels {

/// Allocates consecutive parts, each aligned to a cache line. If `base` is null, take() returns
/// null and only the size is counted.
class Arena {
 public:
  explicit Arena(std::byte* base) : base_(base) {}

  template <class T>
  T* take(std::int64_t count) {
    std::byte* const here = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + kLine - 1) / kLine * kLine;
    return reinterpret_cast<T*>(here);
  }
  std::size_t used() const { return used_; }

 private:
  static constexpr std::size_t kLine = 64;
  std::byte* base_;
  std::size_t used_ = 0;
};

}  // namespace fovea::kernels
