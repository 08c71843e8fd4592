// SPDX-License-Identifier: Apache-2.0
//
// Exponential and hyperbolic tangent on vectors: those that the engine itself uses, for score
// functions of your own (fovea/custom_score.h). Included once per SIMD target by way of
// hwy/foreach_target.h.

#if defined(FOVEA_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_SIMD_MATH_INL_H_
#undef FOVEA_SIMD_MATH_INL_H_
#else
#define FOVEA_SIMD_MATH_INL_H_
#endif

#include <cmath>

#include "fovea/simd_targets.h"
// Highway comes after it.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fovea::HWY_NAMESPACE {
namespace simd_math {

namespace hn = hwy::HWY_NAMESPACE;

/// The larger of a bound and x; x where x is nan. hn::Max leaves nan to the instruction: x86
/// returns its second operand, which is what is wanted, and others need a comparison.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V at_least(D d, float bound, V x) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Max(hn::Set(d, bound), x);
#else
  const V low = hn::Set(d, bound);
  return hn::IfThenElse(hn::Lt(x, low), low, x);
#endif
}

/// x = whole + fraction, fraction in [-0.5, 0.5], and 2^whole. Adding 1.5 * 2^23 + 127 rounds
/// x to an integer, which then stands in the low bits with the exponent's bias already added:
/// shifted into place it is 2^whole, and exactly 0 for whole = -127.
/// Two outputs rather than a structure of both: vectors of unknown size cannot be members.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void split_exponent(D d, V x, V& fraction, V& power) {
  const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, 12582912.0f + 127.0f);
  const V shifted = hn::Add(x, magic);
  fraction = hn::Sub(x, hn::Sub(shifted, magic));
  power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
}

/// (2^f - 1) / f for f in [-0.5, 0.5]: minimax for the relative error of 2^f, which is 2e-9 before
/// rounding. A polynomial one degree lower is 9e-8 off, more than half a unit in the last place.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp2_slope(D d, V f) {
  V p = hn::Set(d, 1.535336196e-04f);
  p = hn::MulAdd(p, f, hn::Set(d, 1.339887502e-03f));
  p = hn::MulAdd(p, f, hn::Set(d, 9.618436918e-03f));
  p = hn::MulAdd(p, f, hn::Set(d, 5.550332367e-02f));
  p = hn::MulAdd(p, f, hn::Set(d, 2.402264774e-01f));
  return hn::MulAdd(p, f, hn::Set(d, 6.931471825e-01f));
}

/// A function of the C library on each of a few doubles.
template <class D, class V, class Function>
HWY_INLINE V by_the_library(D d, V x, const Function& function) {
  HWY_ALIGN double lanes[HWY_MAX_BYTES / sizeof(double)];
  hn::Store(x, d, lanes);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = function(lanes[i]);
  return hn::Load(d, lanes);
}

/// tanh x = (e - 1) / (e + 1) with e = exp(2 |x|), where e - 1 is found without cancellation, so
/// that small x keep their digits.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh_of_floats(D d, V x) {
  // It is 1 to the last digit from 9.02 on, and 2 log2(e) 9.02 = 26.02.
  const V y = hn::Mul(hn::Abs(x), hn::Set(d, 2.885390082f));
  const V limit = hn::Set(d, 27.0f);
  V fraction, power;
  split_exponent(d, hn::IfThenElse(hn::Gt(y, limit), limit, y), fraction, power);
  const V slope = hn::Mul(exp2_slope(d, fraction), fraction);
  const V less_one = hn::MulAdd(power, slope, hn::Sub(power, hn::Set(d, 1.0f)));
  const V more_one = hn::Add(less_one, hn::Set(d, 2.0f));
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  // An estimate of 14 bits and a step of Newton's method take a third of a division's time. Where
  // estimates have 12 bits, a step is not enough and two take as long.
  const V estimate = hn::ApproximateReciprocal(more_one);
  const V correction = hn::NegMulAdd(estimate, more_one, hn::Set(d, 2.0f));
  const V quotient = hn::Min(hn::Set(d, 1.0f), hn::Mul(less_one, hn::Mul(estimate, correction)));
#else
  const V quotient = hn::Div(less_one, more_one);
#endif
  return hn::CopySign(quotient, x);
}

}  // namespace simd_math

/// 2^x of floats x <= 0, to 1 unit in the last place (2 without fused multiply-add); 1 for 0,
/// exactly 0 from -126.5 down and for -inf, nan for nan. An exponential that is clamped to the
/// smallest number instead would let a masked key through, and one clamped by comparing bits would
/// hide a nan.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V exp2_of_nonpositive(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  V fraction, power;
  simd_math::split_exponent(d, simd_math::at_least(d, -127.0f, x), fraction, power);
  const V slope = simd_math::exp2_slope(d, fraction);
  return hn::Mul(hn::MulAdd(slope, fraction, hn::Set(d, 1.0f)), power);
}

/// tanh x; of floats to 5 units in the last place, of doubles the C library's. +-1 for +-inf, nan
/// for nan.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V tanh(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(double)) {
    return simd_math::by_the_library(d, x, [](double one) { return std::tanh(one); });
  } else {
    return simd_math::tanh_of_floats(d, x);
  }
}

}  // namespace fovea::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_SIMD_MATH_INL_H_
