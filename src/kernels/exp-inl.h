// SPDX-License-Identifier: Apache-2.0
//
// 2^x and tanh x on vectors of float32, with nan and -inf as arithmetic has them.

#if defined(FOVEA_KERNELS_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_EXP_INL_H_
#undef FOVEA_KERNELS_EXP_INL_H_
#else
#define FOVEA_KERNELS_EXP_INL_H_
#endif

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// The larger of a bound and x; x where x is nan. hn::Max leaves nan to the instruction: x86 returns
/// its second operand, which is what is wanted, and others need a comparison.
HWY_INLINE Vector at_least(float bound, Vector x) {
  const Floats d;
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Max(hn::Set(d, bound), x);
#else
  const Vector low = hn::Set(d, bound);
  return hn::IfThenElse(hn::Lt(x, low), low, x);
#endif
}

/// x = whole + fraction, fraction in [-0.5, 0.5], and 2^whole. Adding 1.5 * 2^23 + 127 rounds
/// x to an integer, which then stands in the low bits with the exponent's bias already added:
/// shifted into place it is 2^whole, and exactly 0 for whole = -127.
struct PowerOfTwo {
  Vector fraction;
  Vector power;
};
HWY_INLINE PowerOfTwo split_exponent(Vector x) {
  const Floats d;
  const Ints di;
  const Vector magic = hn::Set(d, 12582912.0f + 127.0f);
  const Vector shifted = hn::Add(x, magic);
  return {hn::Sub(x, hn::Sub(shifted, magic)),
          hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)))};
}

/// (2^f - 1) / f for f in [-0.5, 0.5]: minimax for the relative error of 2^f, which is 2e-9 before
/// rounding. A polynomial one degree lower is 9e-8 off, more than half a unit in the last place.
HWY_INLINE Vector exp2_slope(Vector f) {
  const Floats d;
  Vector p = hn::Set(d, 1.535336196e-04f);
  p = hn::MulAdd(p, f, hn::Set(d, 1.339887502e-03f));
  p = hn::MulAdd(p, f, hn::Set(d, 9.618436918e-03f));
  p = hn::MulAdd(p, f, hn::Set(d, 5.550332367e-02f));
  p = hn::MulAdd(p, f, hn::Set(d, 2.402264774e-01f));
  return hn::MulAdd(p, f, hn::Set(d, 6.931471825e-01f));
}

/// 2^x for x <= 0, to 1 unit in the last place; 1 for 0, exactly 0 from -126.5 down and for -inf,
/// nan for nan. An exponential that is clamped to the smallest number instead would let a masked
/// key through, and one clamped by comparing bits would hide a nan.
HWY_INLINE Vector exp2_of_nonpositive(Vector x) {
  const Floats d;
  const PowerOfTwo split = split_exponent(at_least(-127.0f, x));
  const Vector p = hn::MulAdd(exp2_slope(split.fraction), split.fraction, hn::Set(d, 1.0f));
  return hn::Mul(p, split.power);
}

/// tanh x = (e - 1) / (e + 1) with e = exp(2 |x|), where e - 1 is found without cancellation, so
/// that small x keep their digits; to 4 units in the last place. +-1 for +-inf, nan for nan.
HWY_INLINE Vector tanh(Vector x) {
  const Floats d;
  // tanh is 1 to the last digit from 9.02 on: 2 * log2(e) * 9.02 = 26.02.
  const Vector y = hn::Mul(hn::Abs(x), hn::Set(d, 2.885390082f));
  const Vector limit = hn::Set(d, 27.0f);
  const PowerOfTwo split = split_exponent(hn::IfThenElse(hn::Gt(y, limit), limit, y));
  const Vector slope = hn::Mul(exp2_slope(split.fraction), split.fraction);
  const Vector less_one =
      hn::MulAdd(split.power, slope, hn::Sub(split.power, hn::Set(d, 1.0f)));
  const Vector more_one = hn::Add(less_one, hn::Set(d, 2.0f));
#if HWY_TARGET == HWY_SCALAR
  const Vector quotient = hn::Div(less_one, more_one);
#else
  // An estimate of 12 bits or more, after a step of Newton's method, is as exact as is needed and a
  // third of a division's time.
  const Vector estimate = hn::ApproximateReciprocal(more_one);
  const Vector correction = hn::NegMulAdd(estimate, more_one, hn::Set(d, 2.0f));
  const Vector quotient = hn::Mul(less_one, hn::Mul(estimate, correction));
#endif
  return hn::CopySign(quotient, x);
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_EXP_INL_H_
