// SPDX-License-Identifier: Apache-2.0
//
// Horizontal sums of vectors.

#if defined(FOVEA_KERNELS_SIMD_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_SIMD_SUMS_INL_H_
#undef FOVEA_KERNELS_SIMD_SUMS_INL_H_
#else
#define FOVEA_KERNELS_SIMD_SUMS_INL_H_
#endif

#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
/// Stores the sum of all 128-bit blocks of `x` to to[0] ... to[3].
template <class D>
HWY_INLINE void store_sum_of_blocks(D d, hn::Vec<D> x, float* to) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::StoreU(x, d, to);
  } else {
    const hn::Half<D> half;
    store_sum_of_blocks(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)), to);
  }
}
#endif

/// Computes to[i] = the sum of all lanes of x[i] for four vectors.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void store_sums_of_4(const Vector (&x)[4], float* to) {
  for (int i = 0; i < 4; ++i) to[i] = hn::GetLane(x[i]);
}
#else
HWY_INLINE void store_sums_of_4(const Vector (&x)[4], float* to) {
  const Floats d;
  const hn::RepartitionToWide<Floats> pairs;
  const auto low = hn::Add(hn::InterleaveLower(d, x[0], x[1]), hn::InterleaveUpper(d, x[0], x[1]));
  const auto high = hn::Add(hn::InterleaveLower(d, x[2], x[3]), hn::InterleaveUpper(d, x[2], x[3]));
  const auto low_pairs = hn::BitCast(pairs, low);
  const auto high_pairs = hn::BitCast(pairs, high);
  // Each 128-bit block of the sum below holds one partial sum per vector.
  store_sum_of_blocks(d,
                      hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, low_pairs, high_pairs)),
                              hn::BitCast(d, hn::InterleaveUpper(pairs, low_pairs, high_pairs))),
                      to);
}
#endif

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_SIMD_SUMS_INL_H_
