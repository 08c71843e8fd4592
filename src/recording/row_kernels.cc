// SPDX-License-Identifier: Apache-2.0
//
// Loops over rows of weights (row_kernels.h), compiled once per SIMD target.
//
// The divergence of a pair of weights p and q. With the mean m = (p + q) / 2 and t = |p - q| / (p +
// q), both terms together are
//     m g(t),   g(t) = 1/2 ((1 + t) ln(1 + t) + (1 - t) ln(1 - t)).
// Near t = 0 the linear parts of the two logarithms cancel. They are therefore computed from t, not
// from the rounded 1 + t and 1 - t: the relative error of each is then a few units in the last
// place, and that of the pair is of the order of 2^-24 m t. Sums of p ln p, q ln q and m ln m would
// instead have an error of the order of 2^-24 times the entropy, even for equal rows. A polynomial
// in t alone does not work: g has a logarithmic singularity at t = 1.

#include "fovea/simd_targets.h"  // before Highway

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "recording/row_kernels.cc"
#include <hwy/foreach_target.h>
// The include above compiles the rest of this file once per SIMD target.

#include <algorithm>

#include <hwy/highway.h>

#include "kernels/simd/target.h"
#include "recording/row_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::recording::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;

/// Returns ln(1 + z) for z in [1/sqrt(2) - 1, sqrt(2) - 1] by the polynomial of Cephes' logf, to 1
/// unit in the last place.
HWY_INLINE Vector log1p_near_0(Vector z) {
  const Floats d;
  Vector p = hn::Set(d, 7.0376836292e-2f);
  p = hn::MulAdd(p, z, hn::Set(d, -1.1514610310e-1f));
  p = hn::MulAdd(p, z, hn::Set(d, 1.1676998740e-1f));
  p = hn::MulAdd(p, z, hn::Set(d, -1.2420140846e-1f));
  p = hn::MulAdd(p, z, hn::Set(d, 1.4249322787e-1f));
  p = hn::MulAdd(p, z, hn::Set(d, -1.6668057665e-1f));
  p = hn::MulAdd(p, z, hn::Set(d, 2.0000714765e-1f));
  p = hn::MulAdd(p, z, hn::Set(d, -2.4999993993e-1f));
  p = hn::MulAdd(p, z, hn::Set(d, 3.3333331174e-1f));
  p = hn::MulAdd(p, z, hn::Set(d, -0.5f));
  return hn::MulAdd(hn::Mul(z, z), p, z);
}

/// Returns ln(1 + t) for t in [0, 1].
HWY_INLINE Vector log_of_larger(Vector t) {
  const Floats d;
  const auto halves = hn::Gt(t, hn::Set(d, 0.41421356f));
  // (1 + t) / 2 - 1
  const Vector halved = hn::MulSub(t, hn::Set(d, 0.5f), hn::Set(d, 0.5f));
  const Vector log = log1p_near_0(hn::IfThenElse(halves, halved, t));
  return hn::Add(log, hn::IfThenElseZero(halves, hn::Set(d, 0.69314718f)));
}

/// Returns ln(1 - t) for t in [0, 1), where u = 1 - t was computed without cancellation.
HWY_INLINE Vector log_of_smaller(Vector t, Vector u) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  // u = 2^exponent * mantissa, with the mantissa in [1/sqrt(2), sqrt(2)).
  constexpr std::int32_t kRootHalf = 0x3f3504f3;
  const auto bits = hn::Sub(hn::BitCast(di, u), hn::Set(di, kRootHalf));
  const auto exponent = hn::ShiftRight<23>(bits);
  const Vector mantissa =
      hn::BitCast(d, hn::Add(hn::And(bits, hn::Set(di, 0x007fffff)), hn::Set(di, kRootHalf)));
  const auto near = hn::Eq(exponent, hn::Zero(di));
  const Vector z =
      hn::IfThenElse(hn::RebindMask(d, near), hn::Neg(t), hn::Sub(mantissa, hn::Set(d, 1.0f)));
  return hn::MulAdd(hn::ConvertTo(d, exponent), hn::Set(d, 0.69314718f), log1p_near_0(z));
}

/// Returns the term of a pair of weights times 4; 0 if both are 0, and NaN if either is NaN.
HWY_INLINE Vector pair_term(Vector p, Vector q) {
  const Floats d;
  const Vector sum = hn::Add(p, q);
  const auto nothing = hn::Eq(sum, hn::Zero(d));
  const Vector inverse = hn::Div(hn::Set(d, 1.0f), hn::IfThenElse(nothing, hn::Set(d, 1.0f), sum));
  const Vector t = hn::Mul(hn::Abs(hn::Sub(p, q)), inverse);
  const Vector smaller = hn::Min(p, q);
  const Vector u = hn::Mul(hn::Add(smaller, smaller), inverse);
  // u ln u is 0 for u = 0.
  const Vector low = hn::IfThenZeroElse(hn::Eq(u, hn::Zero(d)), hn::Mul(u, log_of_smaller(t, u)));
  const Vector log = log_of_larger(t);
  const Vector high = hn::MulAdd(t, log, log);
  const Vector twice = hn::Add(high, low);
  return hn::Mul(sum, hn::IfThenZeroElse(hn::Lt(twice, hn::Zero(d)), twice));
}

DivergenceSums DivergenceOf(const float* first, const float* second, std::int64_t count) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector terms = hn::Zero(d), firsts = hn::Zero(d), seconds = hn::Zero(d);
  const auto add = [&](Vector p, Vector q) HWY_ATTR {
    terms = hn::Add(terms, pair_term(p, q));
    firsts = hn::Add(firsts, p);
    seconds = hn::Add(seconds, q);
  };
  std::int64_t k = 0;
  for (; k + lanes <= count; k += lanes) add(hn::LoadU(d, first + k), hn::LoadU(d, second + k));
  if (k < count) {
    HWY_ALIGN float rest[2][HWY_MAX_BYTES / sizeof(float)] = {};
    std::copy(first + k, first + count, rest[0]);
    std::copy(second + k, second + count, rest[1]);
    add(hn::Load(d, rest[0]), hn::Load(d, rest[1]));
  }
  const auto total = [](Vector sums) HWY_ATTR {
    return static_cast<double>(hn::GetLane(hn::SumOfLanes(Floats(), sums)));
  };
  return {.divergence = 0.25 * total(terms), .first = total(firsts), .second = total(seconds)};
}

void AddRow(float factor, const float* row, std::int64_t count, float* sums) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Vector factors = hn::Set(d, factor);
  std::int64_t k = 0;
  for (; k + lanes <= count; k += lanes) {
    hn::StoreU(hn::MulAdd(factors, hn::LoadU(d, row + k), hn::LoadU(d, sums + k)), d, sums + k);
  }
  for (; k < count; ++k) sums[k] += factor * row[k];
}

float DotProduct(const float* a, const float* b, std::int64_t count) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  std::int64_t k = 0;
  for (; k + 2 * lanes <= count; k += 2 * lanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, a + k), hn::LoadU(d, b + k), sum0);
    sum1 = hn::MulAdd(hn::LoadU(d, a + k + lanes), hn::LoadU(d, b + k + lanes), sum1);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; k < count; ++k) sum += a[k] * b[k];
  return sum;
}

}  // namespace fovea::recording::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::recording {

HWY_EXPORT(DivergenceOf);
HWY_EXPORT(AddRow);
HWY_EXPORT(DotProduct);

DivergenceSums divergence_of(const float* first, const float* second, std::int64_t count) {
  kernels::choose_target();
  return HWY_DYNAMIC_DISPATCH(DivergenceOf)(first, second, count);
}

void add_row(float factor, const float* row, std::int64_t count, float* sums) {
  kernels::choose_target();
  HWY_DYNAMIC_DISPATCH(AddRow)(factor, row, count, sums);
}

float dot_product(const float* a, const float* b, std::int64_t count) {
  kernels::choose_target();
  return HWY_DYNAMIC_DISPATCH(DotProduct)(a, b, count);
}

}  // namespace fovea::recording
#endif
