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
#include <type_traits>

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

/// Coefficients of minimax polynomials for tanh |x|, one polynomial per column and one degree per
/// row. A polynomial's argument is r, where |x| + kTanhShift = start + r and `start` is the lower
/// end of an interval. The intervals from 1 to 2, 2 to 4, 4 to 8 and 8 to 16 are divided into eight
/// equal ones each. A column's index consists of the last two bits of the exponent of `start` and
/// the first three bits of its mantissa. Column 18, for |x| + kTanhShift >= 10, is the constant 1.
/// Columns 19 to 23 are unused. Column kTanhNearColumn, for the interval from 1 to 1.125, has the
/// polynomial P of tanh x = x P(x^2) instead.
///
/// The maximum relative error is 9.2e-8 for P and 4e-8 for the others. Each row was fitted after
/// the rows above it were rounded to float32.
constexpr int kTanhDegree = 4;
constexpr int kTanhNearColumn = 24;
constexpr float kTanhShift = 0.52f;
// clang-format off
alignas(64) constexpr float kTanhCoefficients[kTanhDegree + 1][32] = {
{0.901468f, 0.9390559f, 0.962587f, 0.9771396f, 0.9860718f, 0.9915289f, 0.99485344f, 0.9968753f,
 0.9981036f, 0.99930197f, 0.99974316f, 0.9999055f, 0.99996525f, 0.9999872f, 0.9999953f, 0.9999983f,
 0.99999934f, 0.99999994f, 1, 0, 0, 0, 0, 0,
 1, 0.5405979f, 0.62306535f, 0.6936726f, 0.7530659f, 0.8022879f, 0.8425793f, 0.8752283f},
{0.187357f, 0.11817435f, 0.07342325f, 0.0451974f, 0.027661521f, 0.016869167f, 0.010268494f, 0.0062410175f,
 0.0037874538f, 0.0013931456f, 0.0005120126f, 0.00018716235f, 6.8452e-05f, 2.717848e-05f, 9.638829e-06f, 3.3077777e-06f,
 1.8720139e-06f, -6.775205e-07f, 0, 0, 0, 0, 0, 0,
 -0.33332542f, 0.70775425f, 0.61179256f, 0.5188143f, 0.43289986f, 0.35633045f, 0.29006702f, 0.23397963f},
{-0.16892536f, -0.110953934f, -0.070593864f, -0.044129293f, -0.027248021f, -0.016693898f, -0.010245199f, -0.0062437486f,
 -0.0037514227f, -0.0013640365f, -0.0004949754f, -0.00016988281f, -5.8455345e-05f, -4.1441843e-05f, -1.1652817e-05f, -1.9080815e-06f,
 -4.23192e-06f, 4.0762106e-06f, 0, 0, 0, 0, 0, 0,
 0.13312003f, -0.3826661f, -0.3813483f, -0.3597686f, -0.32635468f, -0.28575337f, -0.24468951f, -0.20495628f},
{0.0900291f, 0.06443575f, 0.04272309f, 0.027634688f, 0.017335303f, 0.010639617f, 0.0068698144f, 0.0042279796f,
 0.002326756f, 0.00079598563f, 0.0002700464f, 6.018107e-05f, 9.206729e-06f, 6.712442e-05f, 1.3205694e-05f, -2.7458796e-06f,
 5.48115e-06f, -6.6886964e-06f, 0, 0, 0, 0, 0, 0,
 -0.05215042f, -0.027476585f, 0.036667034f, 0.07604784f, 0.10651343f, 0.10939549f, 0.11324684f, 0.10360531f},
{-0.02564462f, -0.021690933f, -0.0150097925f, -0.010454913f, -0.00669488f, -0.0040024263f, -0.0031474358f, -0.0019900152f,
 -0.00077466015f, -0.00022176589f, -5.8566075e-05f, 1.7621302e-05f, 1.9405255e-05f, -5.654741e-05f, -9.321628e-06f, 4.167062e-06f,
 -2.5700751e-06f, 3.3636736e-06f, 0, 0, 0, 0, 0, 0,
 0.015512498f, 0.12694457f, 0.08232606f, 0.058978964f, 0.0029519247f, 0.005726846f, -0.029974861f, -0.031441763f},
};
// clang-format on
/// Below this bound, P is used without a table. |x| + kTanhShift is then less than 1.125 after
/// rounding, so the table selects P, too, and gives the same bits.
constexpr float kTanhNear = 0.6049f;

/// Computes factor * tanh(x) for kCount vectors with elements in (-kTanhNear, kTanhNear).
template <int kCount, class D, class V>
HWY_INLINE void tanh_near_zero(D d, V factor, const V* x, V* result) {
  V square[kCount], ratio[kCount];
  HWY_UNROLL(8)
  for (int i = 0; i < kCount; ++i) {
    square[i] = hn::Mul(x[i], x[i]);
    ratio[i] = hn::Set(d, kTanhCoefficients[kTanhDegree][kTanhNearColumn]);
  }
  HWY_UNROLL(6)
  for (int k = kTanhDegree - 1; k >= 0; --k) {
    const V coefficient = hn::Set(d, kTanhCoefficients[k][kTanhNearColumn]);
    HWY_UNROLL(8)
    for (int i = 0; i < kCount; ++i) ratio[i] = hn::MulAdd(ratio[i], square[i], coefficient);
  }
  HWY_UNROLL(8)
  for (int i = 0; i < kCount; ++i) result[i] = hn::Mul(ratio[i], hn::Mul(factor, x[i]));
}

/// Computes factor * tanh(x), far from zero as factor (1 - 2 / (e + 1)), where e is exp(2 |x|).
template <class D>
struct TanhByExponential {
  using V = hn::Vec<D>;

  explicit HWY_INLINE TanhByExponential(D) {}

  template <int kCount>
  HWY_INLINE void apply(V factor, const V* x, V* result) const {
    const D d;
    V near[kCount], fraction[kCount], power[kCount], slope[kCount];
    tanh_near_zero<kCount>(d, factor, x, near);
    HWY_UNROLL(8)
    for (int i = 0; i < kCount; ++i) {
      // The exponent of e / 2 is 2 log2(e) |x| - 1. The quotient factor / ((e + 1) / 2) is used
      // because 2 factor could overflow. tanh x rounds to 1 if |x| >= 9.02, so an exponent of 26 is
      // large enough.
      const V exponent = hn::MulAdd(hn::Set(d, 2.885390082f), hn::Abs(x[i]), hn::Set(d, -1.0f));
      split_exponent(d, at_most(d, 26.0f, exponent), fraction[i], power[i]);
    }
    exp2_slopes<kCount>(d, fraction, slope);
    const V one = hn::Set(d, 1.0f);
    HWY_UNROLL(8)
    for (int i = 0; i < kCount; ++i) slope[i] = hn::MulAdd(slope[i], fraction[i], one);
    HWY_UNROLL(8)
    for (int i = 0; i < kCount; ++i) {
      const V mean = hn::MulAdd(power[i], slope[i], hn::Set(d, 0.5f));  // (e + 1) / 2
      const V far = hn::Sub(factor, hn::Div(factor, mean));
      const auto is_near = hn::Lt(hn::Abs(x[i]), hn::Set(d, kTanhNear));
      result[i] = hn::IfThenElse(is_near, near[i], hn::CopySignToAbs(far, x[i]));
    }
  }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
/// Computes factor * tanh(x) for vectors of 16 floats. Evaluates a polynomial of kTanhCoefficients,
/// and selects each coefficient by one permutation. TanhByExponential needs twice as many
/// instructions.
template <class D>
class TanhByTable {
  using V = hn::Vec<D>;

 public:
  explicit HWY_INLINE TanhByTable(D d) {
    HWY_UNROLL(5)
    for (int k = 0; k <= kTanhDegree; ++k) {
      low_[k] = hn::Load(d, kTanhCoefficients[k]);
      high_[k] = hn::Load(d, kTanhCoefficients[k] + 16);
    }
  }

  template <int kCount>
  HWY_INLINE void apply(V factor, const V* x, V* result) const {
    const D d;
    const hn::RebindToUnsigned<D> du;
    hn::Mask<D> far[kCount];
    V rest[kCount], sum[kCount];
    hn::Vec<decltype(du)> column[kCount];
    HWY_UNROLL(8)
    for (int i = 0; i < kCount; ++i) {
      const V size = hn::Abs(x[i]);
      // The lower bound keeps the sum above 1, so that all small numbers select the column of P.
      const V shifted = hn::Add(at_least(d, 0.6f, size), hn::Set(d, kTanhShift));
      // True for NaN as well. hn::Not(hn::Lt()) would take another instruction.
      far[i].raw = _mm512_cmp_ps_mask(shifted.raw, hn::Set(d, 1.125f).raw, _CMP_NLT_UQ);
      const auto bits = hn::BitCast(du, at_most(d, 10.0f, shifted));
      column[i] = hn::ShiftRight<20>(bits);
      const V start = hn::BitCast(d, hn::And(bits, hn::Set(du, 0xfff00000u)));
      const V square = hn::Mul(size, size);
      rest[i].raw = _mm512_mask_sub_ps(square.raw, far[i].raw, hn::BitCast(d, bits).raw, start.raw);
      sum[i] = coefficient(kTanhDegree, column[i]);
    }
    HWY_UNROLL(5)
    for (int k = kTanhDegree - 1; k >= 0; --k) {
      HWY_UNROLL(8)
      for (int i = 0; i < kCount; ++i) {
        sum[i] = hn::MulAdd(sum[i], rest[i], coefficient(k, column[i]));
      }
    }
    HWY_UNROLL(8)
    for (int i = 0; i < kCount; ++i) {
      const V signed_factor = hn::Or(factor, hn::And(x[i], hn::Set(d, -0.0f)));
      const V near = hn::Mul(factor, x[i]);
      result[i] = hn::Mul(sum[i], hn::IfThenElse(far[i], signed_factor, near));
    }
  }

 private:
  /// Returns the coefficient of degree k for each lane, selected by the low five bits of `column`.
  template <class Columns>
  HWY_INLINE V coefficient(int k, Columns column) const {
    return V{_mm512_permutex2var_ps(low_[k].raw, column.raw, high_[k].raw)};
  }

  V low_[kTanhDegree + 1], high_[kTanhDegree + 1];
};

/// The faster implementation for vectors of type D, valid for all elements.
template <class D>
using TanhAnywhere =
    std::conditional_t<hn::MaxLanes(D()) == 16, TanhByTable<D>, TanhByExponential<D>>;
#else
template <class D>
using TanhAnywhere = TanhByExponential<D>;
#endif

/// Computes factor * tanh(x) with an error of at most 4 units in the last place, or 3 if the factor
/// is 1. The bits of an element's result do not depend on other elements.
template <class D>
class Tanh {
  using V = hn::Vec<D>;

 public:
  HWY_INLINE Tanh(D d, float factor) : factor_(hn::Set(d, factor)), anywhere_(d) {}

  /// Returns whether all elements of kCount vectors are in (-kTanhNear, kTanhNear). NaN is not.
  template <int kCount>
  HWY_INLINE bool all_near_zero(const V* x) const {
    const D d;
    const V end = hn::Set(d, kTanhNear);
    auto near = hn::Lt(hn::Abs(x[0]), end);
    HWY_UNROLL(8)
    for (int i = 1; i < kCount; ++i) near = hn::And(near, hn::Lt(hn::Abs(x[i]), end));
    return hn::AllTrue(d, near);
  }

  /// Computes result = factor * tanh(x) for kCount vectors. `result` may be `x`.
  template <int kCount>
  HWY_INLINE void apply(const V* x, V* result) const {
    anywhere_.template apply<kCount>(factor_, x, result);
  }

  /// As apply(), in half the time. Requires all_near_zero(x).
  template <int kCount>
  HWY_INLINE void apply_near_zero(const V* x, V* result) const {
    tanh_near_zero<kCount>(D(), factor_, x, result);
  }

  /// Returns factor * tanh(x) by the faster of the two functions.
  HWY_INLINE V operator()(V x) const {
    V result;
    if (all_near_zero<1>(&x)) {
      apply_near_zero<1>(&x, &result);
    } else {
      apply<1>(&x, &result);
    }
    return result;
  }

 private:
  V factor_;
  TanhAnywhere<D> anywhere_;
};

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

/// Returns tanh x: for floats to 3 units in the last place, for doubles by the C library. Returns
/// +-1 for +-infinity, and NaN for NaN.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V tanh(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(double)) {
    return simd_math::by_the_library(d, x, [](double one) { return std::tanh(one); });
  } else {
    return simd_math::Tanh<D>(d, 1.0f)(x);
  }
}

}  // namespace fovea::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_SIMD_MATH_INL_H_
