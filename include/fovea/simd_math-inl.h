// SPDX-License-Identifier: Apache-2.0
//
// Vectorised exponential and hyperbolic tangent: the functions that the engine itself uses, for
// custom score functions (fovea/custom_score.h). Included once per SIMD target through
// hwy/foreach_target.h.

#if defined(FOVEA_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_SIMD_MATH_INL_H_
#undef FOVEA_SIMD_MATH_INL_H_
#else
#define FOVEA_SIMD_MATH_INL_H_
#endif

#include <cmath>

#include "fovea/simd_targets.h"
// Must follow simd_targets.h, which configures Highway.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fovea::HWY_NAMESPACE {
namespace simd_math {

namespace hn = hwy::HWY_NAMESPACE;

/// Returns max(bound, x), or x if x is NaN. The NaN behaviour of hn::Max depends on the
/// instruction: x86 returns the second operand, here x; other targets need a comparison.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V at_least(D d, float bound, V x) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Max(hn::Set(d, bound), x);
#else
  const V low = hn::Set(d, bound);
  return hn::IfThenElse(hn::Lt(x, low), low, x);
#endif
}

/// Returns min(bound, x), or x if x is NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V at_most(D d, float bound, V x) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Min(hn::Set(d, bound), x);
#else
  const V high = hn::Set(d, bound);
  return hn::IfThenElse(hn::Gt(x, high), high, x);
#endif
}

/// Splits x = whole + fraction, with fraction in [-0.5, 0.5], and returns the fraction and 2^whole.
/// Adding 1.5 * 2^23 + 127 rounds x to an integer in the low bits, with the exponent bias already
/// added. Shifted left by 23 bits, these are 2^whole; exactly 0 for whole = -127.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void split_exponent(D d, V x, V& fraction, V& power) {
  const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, 12582912.0f + 127.0f);
  const V shifted = hn::Add(x, magic);
  fraction = hn::Sub(x, hn::Sub(shifted, magic));
  power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
}

/// Computes (2^f - 1) / f for each of `kCount` vectors with elements in [-0.5, 0.5]: a minimax
/// polynomial for the relative error of 2^f, which is 2e-9 before rounding. A polynomial one degree
/// lower has an error of 9e-8, more than half a unit in the last place.
template <int kCount, class D, class V>
HWY_INLINE void exp2_slopes(D d, const V* f, V* slope) {
  const auto start = hn::Set(d, 1.535336196e-04f);
  HWY_UNROLL(8)
  for (int i = 0; i < kCount; ++i) slope[i] = start;
  const auto step = [&](float coefficient) HWY_ATTR {
    const auto c = hn::Set(d, coefficient);
    HWY_UNROLL(8)
    for (int i = 0; i < kCount; ++i) slope[i] = hn::MulAdd(slope[i], f[i], c);
  };
  step(1.339887502e-03f);
  step(9.618436918e-03f);
  step(5.550332367e-02f);
  step(2.402264774e-01f);
  step(6.931471825e-01f);
}

/// Applies a C library function to each lane of a vector of doubles.
template <class D, class V, class Function>
HWY_INLINE V by_the_library(D d, V x, const Function& function) {
  HWY_ALIGN double lanes[HWY_MAX_BYTES / sizeof(double)];
  hn::Store(x, d, lanes);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = function(lanes[i]);
  return hn::Load(d, lanes);
}

/// 2 log2(e)
constexpr float kTanhScale = 2.885390082f;
/// Computes tanh x for kTanhScale * x, for each of `kCount` vectors. tanh x = (e - 1) / (e + 1)
/// with e = exp(2 |x|), and e - 1 is computed without cancellation, so small x keep their
/// precision.
template <int kCount, class D, class V>
HWY_INLINE void tanh_of_scaled(D d, const V* scaled, V* result) {
  V fraction[kCount], power[kCount], slope[kCount];
  HWY_UNROLL(8)
  for (int i = 0; i < kCount; ++i) {
    // In float32, tanh rounds to 1 from 9.02 on, and 2 log2(e) 9.02 = 26.02.
    split_exponent(d, at_most(d, 27.0f, hn::Abs(scaled[i])), fraction[i], power[i]);
  }
  exp2_slopes<kCount>(d, fraction, slope);
  HWY_UNROLL(8)
  for (int i = 0; i < kCount; ++i) slope[i] = hn::Mul(slope[i], fraction[i]);
  HWY_UNROLL(8)
  for (int i = 0; i < kCount; ++i) {
    const V less_one = hn::MulAdd(power[i], slope[i], hn::Sub(power[i], hn::Set(d, 1.0f)));
    const V more_one = hn::Add(less_one, hn::Set(d, 2.0f));
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    // A 14-bit reciprocal estimate with one Newton step takes a third of the time of a division.
    // With 12-bit estimates, one step is not accurate enough, and two take as long as a division.
    const V estimate = hn::ApproximateReciprocal(more_one);
    const V correction = hn::NegMulAdd(estimate, more_one, hn::Set(d, 2.0f));
    const V quotient = hn::Min(hn::Set(d, 1.0f), hn::Mul(less_one, hn::Mul(estimate, correction)));
#else
    const V quotient = hn::Div(less_one, more_one);
#endif
    result[i] = hn::CopySign(quotient, scaled[i]);
  }
}

/// The same for one vector.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh_of_scaled(D d, V scaled) {
  V result;
  tanh_of_scaled<1>(d, &scaled, &result);
  return result;
}

}  // namespace simd_math

/// Computes 2^x for each of `kCount` vectors of floats x <= 0, to 1 unit in the last place (2
/// without FMA). The result is 1 for 0, exactly 0 for x <= -126.5 and for -inf, and NaN for NaN.
/// Clamping the result to the smallest positive number instead would give masked keys a non-zero
/// weight, and clamping by an integer comparison of the bits would hide NaN. Steps are computed for
/// all vectors in turn: a chain of them takes 45 cycles, and a CPU looks few instructions ahead.
template <int kCount, class D, class V>
HWY_INLINE void exp2_of_nonpositive(D d, const V* x, V* power) {
  namespace hn = hwy::HWY_NAMESPACE;
  V fraction[kCount], slope[kCount];
  HWY_UNROLL(8)
  for (int i = 0; i < kCount; ++i) {
    simd_math::split_exponent(d, simd_math::at_least(d, -127.0f, x[i]), fraction[i], power[i]);
  }
  simd_math::exp2_slopes<kCount>(d, fraction, slope);
  const auto one = hn::Set(d, 1.0f);
  HWY_UNROLL(8)
  for (int i = 0; i < kCount; ++i) slope[i] = hn::MulAdd(slope[i], fraction[i], one);
  HWY_UNROLL(8)
  for (int i = 0; i < kCount; ++i) power[i] = hn::Mul(slope[i], power[i]);
}
/// The same for one vector.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V exp2_of_nonpositive(D d, V x) {
  V power;
  exp2_of_nonpositive<1>(d, &x, &power);
  return power;
}

/// Returns tanh x: for floats to 5 units in the last place, for doubles by the C library. Returns
/// +-1 for +-infinity, and NaN for NaN.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V tanh(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(double)) {
    return simd_math::by_the_library(d, x, [](double one) { return std::tanh(one); });
  } else {
    return simd_math::tanh_of_scaled(d, hn::Mul(hn::Set(d, simd_math::kTanhScale), x));
  }
}

}  // namespace fovea::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_SIMD_MATH_INL_H_
