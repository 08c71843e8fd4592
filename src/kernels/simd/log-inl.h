// SPDX-License-Identifier: Apache-2.0
//
// The natural logarithm of float64 vectors. Highway's implementation (hwy/contrib/math) does not
// compile in the namespaces of the additional targets (bf16_target-inl.h).

#if defined(FOVEA_KERNELS_SIMD_LOG_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_SIMD_LOG_INL_H_
#undef FOVEA_KERNELS_SIMD_LOG_INL_H_
#else
#define FOVEA_KERNELS_SIMD_LOG_INL_H_
#endif

#include <cstdint>
#include <numbers>

#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Returns ln x for normal numbers x > 0, with an error of at most 2e-12 |ln x|. The result is
/// meaningless for other numbers.
///
/// With x = 2^e m and m in [sqrt(1/2), sqrt(2)), ln x = e ln 2 + ln m, and with s = (m - 1) / (m +
/// 1), ln m = 2 (s + s^3 / 3 + s^5 / 5 + ...) up to s^13 / 13.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log_of_positive(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  constexpr std::uint64_t kRootOfHalf = 0x3fe6a09e667f3bcd, kOne = 0x3ff0000000000000;
  constexpr int kMantissaBits = 52;
  // The exponent field is e + 1023.
  const auto shifted = hn::Add(hn::BitCast(du, x), hn::Set(du, kOne - kRootOfHalf));
  const auto field = hn::ShiftRight<kMantissaBits>(shifted);
  // The low mantissa bits of 2^52 hold the integer, so that no conversion instruction is needed.
  const V e = hn::Sub(hn::BitCast(d, hn::Or(field, hn::BitCast(du, hn::Set(d, 0x1p52)))),
                      hn::Set(d, 0x1p52 + 1023));
  const auto power = hn::Sub(hn::ShiftLeft<kMantissaBits>(field), hn::Set(du, kOne));
  const V m = hn::BitCast(d, hn::Sub(hn::BitCast(du, x), power));
  const V one = hn::Set(d, 1.0);
  const V s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  const V square = hn::Mul(s, s);
  V sum = hn::Set(d, 2.0 / 13);
  for (int n = 11; n > 0; n -= 2) sum = hn::MulAdd(sum, square, hn::Set(d, 2.0 / n));
  return hn::MulAdd(e, hn::Set(d, std::numbers::ln2_v<double>), hn::Mul(s, sum));
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_SIMD_LOG_INL_H_
