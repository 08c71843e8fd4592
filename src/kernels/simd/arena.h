// SPDX-License-Identifier: Apache-2.0
//
// Dividing scratch memory: the same walk over the parts says how much there must be and where each
// lies.

#pragma once

#include <cstddef>
#include <cstdint>

namespace fovea::kernels {

/// Hands out one part after the other, each aligned to a cache line; null pointers where there is
/// no memory yet, to count only.
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
