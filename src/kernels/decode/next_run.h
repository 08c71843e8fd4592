// SPDX-License-Identifier: Apache-2.0
//
// Prefetching of the next block of a paged cache.

#pragma once

#include <cstddef>
#include <cstdint>

namespace fovea::kernels {

/// Prefetcher of the block of keys or values after the current one, with one part per head. The
/// hardware prefetchers follow addresses within a block, but cannot know which block is next.
class NextRun {
 public:
  NextRun() = default;
  template <class T>
  NextRun(const T* first, std::int64_t parts, std::int64_t part_numbers)
      : first_(reinterpret_cast<const std::byte*>(first)),
        part_bytes_(part_numbers * static_cast<std::int64_t>(sizeof(T))),
        step_(parts * part_bytes_ > kMaxBytes ? kPage : kLine),
        pace_(sizeof(T)) {}

  /// Prefetches a part into the L2 cache: all lines of a small block, or the first line of each
  /// page of a large block, which starts the hardware prefetchers. Always inlined, because GCC
  /// removes calls to functions that only prefetch.
  [[gnu::always_inline]] void fetch(std::int64_t part) const {
    const std::byte* const from = first_ + part * part_bytes_;
    // Each prefetch is followed by a few dummy loads, which spread the prefetches over time. Issued
    // back to back, they would occupy all outstanding requests of a core (24 on Zen 4) and leave
    // none for the current block. The counts were found by measurement: four loads per line of
    // floats, two per line of 16-bit types.
    const volatile std::byte at_hand{};
    for (std::int64_t at = 0; at < part_bytes_; at += step_) {
      __builtin_prefetch(from + at, 0, 2);
      for (std::int64_t i = 0; i < pace_; ++i) static_cast<void>(at_hand);
    }
  }

 private:
  static constexpr std::int64_t kLine = 64;
  static constexpr std::int64_t kPage = 4 << 10;
  static constexpr std::int64_t kMaxBytes = 64 << 10;

  const std::byte* first_ = nullptr;
  std::int64_t part_bytes_ = 0;
  std::int64_t step_ = kLine;
  std::int64_t pace_ = 0;
};

}  // namespace fovea::kernels
