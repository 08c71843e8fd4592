// SPDX-License-Identifier: Apache-2.0
//
// Prefetching of the next block of a paged cache.

#pragma once

#include <cstddef>
#include <cstdint>

namespace fovea::kernels {

/// The block of keys or values after the current one, to prefetch, in as many parts as there are
/// heads. The processor's own prefetchers know what follows within a block, not which block is
/// next.
class NextRun {
 public:
  NextRun() = default;
  template <class T>
  NextRun(const T* first, std::int64_t parts, std::int64_t part_numbers)
      : first_(reinterpret_cast<const std::byte*>(first)),
        part_bytes_(part_numbers * static_cast<std::int64_t>(sizeof(T))),
        step_(parts * part_bytes_ > kMaxBytes ? kPage : kLine),
        pace_(sizeof(T)) {}

  /// Asks for a part to be in the second cache soon: for all lines of a small block, and for the
  /// first one of each page of a large one, which sets the prefetchers going. Inlined, for GCC
  /// leaves out calls of functions that do nothing else.
  [[gnu::always_inline]] void fetch(std::int64_t part) const {
    const std::byte* const from = first_ + part * part_bytes_;
    // Each line comes with a few loads of something at hand, for they take turns: asked for as fast
    // as can be, the lines would be all requests that a core can have under way (24, on Zen 4), and
    // the block at work would have none. Four for a line of floats, two of 16 bits: as measured.
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
