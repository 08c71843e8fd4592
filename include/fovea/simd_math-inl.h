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

/// 2 log2(e)
constexpr float kTanhScale = 2.885390082f;
/// A bound for |kTanhScale x|: from kTanhScale * 9.02 = 26.02 on, tanh x rounds to 1 in float32.
constexpr float kTanhEnd = 27.0f;

/// Computes factor * tanh(x) as factor * (e - 1) / (e + 1), where e = exp(2 |x|). The difference
/// e - 1 is computed without cancellation, so small x keep their precision.
template <class D>
class TanhByExponential {
  using V = hn::Vec<D>;

 public:
  HWY_INLINE TanhByExponential(D d, float factor) : factor_(hn::Set(d, factor)) {}

  /// Computes result = factor * tanh(scaled / kTanhScale) for kCount vectors. `result` may be
  /// `scaled`.
  template <int kCount>
  HWY_INLINE void apply(const V* scaled, V* result) const {
    const D d;
    V fraction[kCount], power[kCount], slope[kCount];
    HWY_UNROLL(8)
    for (int i = 0; i < kCount; ++i) {
      split_exponent(d, at_most(d, kTanhEnd, hn::Abs(scaled[i])), fraction[i], power[i]);
    }
    exp2_slopes<kCount>(d, fraction, slope);
    HWY_UNROLL(8)
    for (int i = 0; i < kCount; ++i) slope[i] = hn::Mul(slope[i], fraction[i]);
    HWY_UNROLL(8)
    for (int i = 0; i < kCount; ++i) {
      const V less_one = hn::MulAdd(power[i], slope[i], hn::Sub(power[i], hn::Set(d, 1.0f)));
      const V more_one = hn::Add(less_one, hn::Set(d, 2.0f));
      result[i] = hn::Mul(factor_, hn::CopySign(hn::Div(less_one, more_one), scaled[i]));
    }
  }

 private:
  V factor_;
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
/// Row k, column j: the coefficient of (y - j)^k for tanh(y / kTanhScale), y in [j - 0.5, j + 0.5].
/// Minimax polynomials for the relative error; each row was fitted with the rows above it already
/// rounded to float32. y is at most kTanhEnd, so the last columns are unused.
constexpr int kTanhDegree = 5;
alignas(64) constexpr float kTanhCoefficients[kTanhDegree + 1][32] = {
    {0.0f,         0.333333284f, 0.599999964f, 0.777777791f, 0.882352948f, 0.939393938f,
     0.969230771f, 0.984496117f, 0.992217898f, 0.996101379f, 0.998048782f, 0.999023914f,
     0.999511838f, 0.999755859f, 0.99987793f,  0.999938965f, 0.999969482f, 0.999984741f,
     0.999992371f, 0.999996185f, 0.999998093f, 0.999999046f, 0.999999523f, 0.999999762f,
     0.999999881f, 0.99999994f,  0.99999994f,  1.0f},
    {0.346573591f,    0.308065712f,    0.221807078f,    0.136917949f,    0.0767498463f,
     0.040735919f,    0.0209994894f,   0.010663162f,    0.00537315244f,  0.00269706058f,
     0.00135116279f,  0.000676241005f, 0.000338285579f, 0.000169184073f, 8.46023613e-05f,
     4.23037636e-05f, 2.11525276e-05f, 1.05764257e-05f, 5.28825285e-06f, 2.64413666e-06f,
     1.32207083e-06f, 6.6103604e-07f,  3.30518162e-07f, 1.65259124e-07f, 8.26295761e-08f,
     4.13147916e-08f, 2.06573958e-08f, 1.03286952e-08f},
    {1.59486135e-07f,  -0.0355850384f,   -0.0461218469f,   -0.0369083434f,   -0.0234707352f,
     -0.0132624274f,   -0.00705396617f,  -0.00363799999f,  -0.00184766913f,  -0.000931543414f,
     -0.000467413804f, -0.000234140709f, -0.000117182179f, -5.76687744e-05f, -2.9079145e-05f,
     -1.46007678e-05f, -7.31568389e-06f, -3.66166705e-06f, -1.83178997e-06f, -9.1613424e-07f,
     -4.5812709e-07f,  -2.29078651e-07f, -1.14543219e-07f, -5.72726826e-08f, -2.86366113e-08f,
     -1.43183359e-08f, 9.4343909e-07f,   -4.7887869e-07f},
    {-0.0138791846f,  -0.00822782423f, 0.000710625609f, 0.00446692249f,  0.00410457328f,
     0.00268693222f,  0.00152871292f,  0.000814452011f, 0.00042025061f,  0.000213444131f,
     0.000107561587f, 5.39911453e-05f, 2.70483415e-05f, 1.35376295e-05f, 6.77209755e-06f,
     3.38685709e-06f, 1.69363182e-06f, 8.46861383e-07f, 4.23447602e-07f, 2.11725293e-07f,
     1.05863734e-07f, 5.29321618e-08f, 2.64663846e-08f, 1.32331888e-08f, 6.61648958e-09f,
     3.30823435e-09f, 1.65414071e-09f, 8.27094615e-10f},
    {1.73354038e-05f,  0.00232964451f,   0.0016877267f,    0.000285925547f,  -0.000308629882f,
     -0.00034252918f,  -0.00023114869f,  -0.00013364639f,  -7.08787193e-05f, -3.47112327e-05f,
     -1.83635093e-05f, -9.3472172e-06f,  -4.70191435e-06f, -6.15690442e-06f, -2.12986652e-06f,
     -8.27764609e-07f, -3.54585609e-07f, -1.62468282e-07f, -7.75273108e-08f, -3.78363794e-08f,
     -1.86857267e-08f, -9.28430754e-09f, -4.62704364e-09f, -2.30919084e-09f, -1.15335641e-09f,
     -5.76587833e-10f, -3.80006986e-06f, 1.89974651e-06f},
    {0.00063539343f,  0.000170862724f, -0.000307313661f, -0.000209262376f, -4.49423424e-05f,
     1.67751059e-05f, 2.30757159e-05f, 1.5928279e-05f,   9.17701254e-06f,  4.91146784e-06f,
     2.53322469e-06f, 1.28792078e-06f, 6.49222329e-07f,  3.24977236e-07f,  1.62954677e-07f,
     8.16172019e-08f, 4.08391507e-08f, 2.04413624e-08f,  1.02112407e-08f,  5.11056308e-09f,
     2.55457144e-09f, 1.27701594e-09f, 6.37747521e-10f,  3.18789606e-10f,  1.59806682e-10f,
     7.99312283e-11f, 3.98721611e-11f, 1.9892624e-11f},
};

/// Computes the same as TanhByExponential with two thirds of the operations, for vectors of 16
/// floats. Evaluates a polynomial around the integer nearest to |scaled|, whose coefficients are
/// selected by one permutation each. The error of tanh, before it is multiplied by the factor, is
/// at most 4.4 units in the last place.
template <class D>
class TanhByTable {
  using V = hn::Vec<D>;

 public:
  HWY_INLINE TanhByTable(D d, float factor) : factor_(hn::Set(d, factor)) {
    HWY_UNROLL(6)
    for (int k = 0; k <= kTanhDegree; ++k) {
      low_[k] = hn::Load(d, kTanhCoefficients[k]);
      high_[k] = hn::Load(d, kTanhCoefficients[k] + 16);
    }
  }

  template <int kCount>
  HWY_INLINE void apply(const V* scaled, V* result) const {
    const D d;
    V nearest[kCount], rest[kCount], sum[kCount];
    HWY_UNROLL(8)
    for (int i = 0; i < kCount; ++i) {
      const V magic = hn::Set(d, 12582912.0f);  // 1.5 * 2^23 rounds to an integer in the low bits
      const V x = at_most(d, kTanhEnd, hn::Abs(scaled[i]));
      nearest[i] = hn::Add(x, magic);
      rest[i] = hn::Sub(x, hn::Sub(nearest[i], magic));
      sum[i] = coefficient(kTanhDegree, nearest[i]);
    }
    HWY_UNROLL(6)
    for (int k = kTanhDegree - 1; k >= 0; --k) {
      HWY_UNROLL(8)
      for (int i = 0; i < kCount; ++i) {
        sum[i] = hn::MulAdd(sum[i], rest[i], coefficient(k, nearest[i]));
      }
    }
    HWY_UNROLL(8)
    for (int i = 0; i < kCount; ++i) {
      result[i] = hn::Mul(factor_, hn::CopySignToAbs(sum[i], scaled[i]));
    }
  }

 private:
  /// Returns the coefficient of degree k for each lane, selected by the low five bits of `nearest`.
  HWY_INLINE V coefficient(int k, V nearest) const {
    return V{_mm512_permutex2var_ps(low_[k].raw, _mm512_castps_si512(nearest.raw), high_[k].raw)};
  }

  V factor_, low_[kTanhDegree + 1], high_[kTanhDegree + 1];
};

/// The faster implementation for vectors of type D.
template <class D>
using Tanh = std::conditional_t<hn::MaxLanes(D()) == 16, TanhByTable<D>, TanhByExponential<D>>;
#else
template <class D>
using Tanh = TanhByExponential<D>;
#endif

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
    const V scaled = hn::Mul(hn::Set(d, simd_math::kTanhScale), x);
    V result;
    simd_math::Tanh<D>(d, 1.0f).template apply<1>(&scaled, &result);
    return result;
  }
}

}  // namespace fovea::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_SIMD_MATH_INL_H_
