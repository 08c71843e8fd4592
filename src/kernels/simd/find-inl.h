// SPDX-License-Identifier: Apache-2.0
//
// Branch-free search for the lanes of a vector or the rows of a tile that meet a condition, with
// the result as a list or as a bit mask. The matching positions are practically random, so branches
// would be mispredicted.

#if defined(FOVEA_KERNELS_SIMD_FIND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_SIMD_FIND_INL_H_
#undef FOVEA_KERNELS_SIMD_FIND_INL_H_
#else
#define FOVEA_KERNELS_SIMD_FIND_INL_H_
#endif

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// For each byte, the indices of its set bits in ascending order, one byte per index.
constexpr std::array<std::uint64_t, 256> kBitsOfByte = [] {
  std::array<std::uint64_t, 256> numbers{};
  for (std::size_t byte = 0; byte < numbers.size(); ++byte) {
    int count = 0;
    for (std::uint64_t bit = 0; bit < 8; ++bit) {
      if (byte >> bit & 1) numbers[byte] |= bit << (8 * count++);
    }
  }
  return numbers;
}();

/// Writes first + lane for every lane set in `mask`, in ascending order, and returns their number.
/// `to` must have room for a whole vector.
HWY_INLINE std::int64_t list_lanes(hn::Mask<Floats> mask, std::int32_t first, std::int32_t* to) {
  const Ints d;
  const auto these = hn::RebindMask(d, mask);
  const auto start = hn::Set(d, first);
  if constexpr (kLanes > 8) {
    hn::StoreU(hn::Compress(hn::Add(start, hn::Iota(d, 0)), these), d, to);
    return static_cast<std::int64_t>(hn::CountTrue(d, these));
  } else {
    // Without a compress instruction, hn::Compress copies a table to the stack in every call.
    std::uint8_t bits[8];
    hn::StoreMaskBits(d, these, bits);
    const unsigned set = bits[0] & ((1u << kLanes) - 1u);
    const auto* const lanes = reinterpret_cast<const std::uint8_t*>(&kBitsOfByte[set]);
    const auto numbers = hn::PromoteTo(d, hn::LoadU(hn::Rebind<std::uint8_t, Ints>(), lanes));
    hn::StoreU(hn::Add(start, numbers), d, to);
    return std::popcount(set);
  }
}

/// Returns the rows of a tile whose element in one lane is equal to `other`: bit i is set for row
/// i. All comparisons come before any branch.
HWY_INLINE unsigned rows_equal_to(const float* numbers, float other) {
  unsigned bits = 0;
  HWY_UNROLL(8)
  for (int i = 0; i < kTileRows; ++i) {
    bits |= static_cast<unsigned>(numbers[i * kPanelLanes] == other) << i;
  }
  return bits;
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_SIMD_FIND_INL_H_
