// SPDX-License-Identifier: Apache-2.0
//
// Passes over elements and rows (passes.h). These are plain loops that compilers vectorize for each
// SIMD target. Most of the time is spent on one read and one write per element, and on the random
// number generator. Sums use the same number of lanes on every SIMD target, and products are not
// fused with sums, so that rounding is the same on every SIMD target.

#include "nn/passes.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "fovea/simd_targets.h"  // before Highway

#include "kernels/simd/target.h"
#include "nn/elementary.h"
#include "problem/dropout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/passes.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fovea::nn::passes::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Returns the sum of term(i) for i in [0, count), accumulated in 32 lanes that are added last.
template <class Sum, class Term>
HWY_INLINE Sum sum(std::int64_t count, const Term& term) {
  constexpr std::int64_t kSums = 32;
  Sum lanes[kSums] = {};
  std::int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (std::int64_t lane = 0; lane < kSums; ++lane) lanes[lane] += term(i + lane);
  }
  Sum total = 0;
  for (; i < count; ++i) total += term(i);
  for (const Sum lane : lanes) total += lane;
  return total;
}

// Philox computes four 32-bit words, that is eight 16-bit halves, per counter. The generator below
// processes kCounters counters at a time, in explicit vectors of at most that many lanes. Without
// explicit vectors the generator takes 2 to 12 % of a step, depending on the compiler.
constexpr std::size_t kCounters = kDrawnTogether / 8;

/// Computes the high and low halves of the 64-bit products of 32-bit words.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void multiply_wide(D d, V x, std::uint32_t by, V& high, V& low) {
#if HWY_TARGET == HWY_SCALAR
  const std::uint64_t product = std::uint64_t{by} * hn::GetLane(x);
  low = hn::Set(d, static_cast<std::uint32_t>(product));
  high = hn::Set(d, static_cast<std::uint32_t>(product >> 32));
#else
  const hn::RepartitionToWide<D> wide;
  const V factor = hn::Set(d, by);
  const auto even = hn::MulEven(x, factor);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, x))), factor);
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
#endif
}

/// Writes 1 (kept) or 0 (dropped) for kDrawnTogether elements, starting at element `first`.
HWY_INLINE void draw(const Dropout& rule, std::uint32_t threshold, std::int64_t first,
                     std::uint8_t* kept) {
  const hn::CappedTag<std::uint32_t, kCounters> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  using Words = hn::Vec<decltype(d)>;
  const auto counter = static_cast<std::uint64_t>(first / 8);
  const auto least = hn::Set(di, static_cast<std::int32_t>(threshold));
  const auto one = hn::Set(di, 1);
  for (std::size_t i = 0; i < kCounters; i += hn::Lanes(d)) {
    // first / 8 is a multiple of kCounters, so adding i does not carry into the high word.
    Words a = hn::Iota(d, static_cast<std::uint32_t>(counter) + static_cast<std::uint32_t>(i));
    Words b = hn::Set(d, static_cast<std::uint32_t>(counter >> 32));
    Words c = hn::Zero(d), e = hn::Set(d, rule.call);
    auto key0 = static_cast<std::uint32_t>(rule.seed);
    auto key1 = static_cast<std::uint32_t>(rule.seed >> 32);
    HWY_UNROLL(10)
    for (int round = 0; round < philox::kRounds; ++round) {
      Words high_a, low_a, high_c, low_c;
      multiply_wide(d, a, philox::kMultiplier0, high_a, low_a);
      multiply_wide(d, c, philox::kMultiplier1, high_c, low_c);
      a = hn::Xor(hn::Xor(high_c, b), hn::Set(d, key0));
      b = low_c;
      c = hn::Xor(hn::Xor(high_a, e), hn::Set(d, key1));
      e = low_a;
      key0 += philox::kWeyl0;
      key1 += philox::kWeyl1;
    }
    const Words words[] = {a, b, c, e};
    for (std::size_t w = 0; w < 4; ++w) {
      const auto low = hn::BitCast(di, hn::And(words[w], hn::Set(d, 0xFFFFu)));
      const auto high = hn::BitCast(di, hn::ShiftRight<16>(words[w]));
      std::uint8_t* const to = kept + 2 * w * kCounters + i;
      hn::StoreU(hn::DemoteTo(bytes, hn::IfThenZeroElse(hn::Lt(low, least), one)), bytes, to);
      hn::StoreU(hn::DemoteTo(bytes, hn::IfThenZeroElse(hn::Lt(high, least), one)), bytes,
                 to + kCounters);
    }
  }
}

template <class Real>
void drop(const Drop<Real>& of) {
  const auto threshold = static_cast<std::uint32_t>(std::lround(of.rule.probability * 0x1p16));
  const Real factor = of.factor;
  std::uint8_t here[kDrawnTogether];
  for (std::int64_t first = of.begin; first < of.end; first += kDrawnTogether) {
    std::uint8_t* const kept = of.kept != nullptr ? of.kept + first : here;
    draw(of.rule, threshold, first, kept);
    const std::int64_t count = std::min(kDrawnTogether, of.end - first);
    Real* HWY_RESTRICT const numbers = of.numbers + first;
    if (of.past != nullptr) {
      const Real* HWY_RESTRICT const past = of.past + first;
      for (std::int64_t i = 0; i < count; ++i) {
        numbers[i] = past[i] + (kept[i] ? numbers[i] * factor : 0);
      }
    } else if (of.relu) {
      // Written so that NaN stays NaN; std::max could return 0.
      for (std::int64_t i = 0; i < count; ++i) {
        numbers[i] = !kept[i] || numbers[i] < 0 ? 0 : numbers[i] * factor;
      }
    } else {
      for (std::int64_t i = 0; i < count; ++i) numbers[i] = kept[i] ? numbers[i] * factor : 0;
    }
  }
}

template <class Real>
void restore(const std::uint8_t* kept, Real factor, const Real* from, Real* to,
             std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = kept[i] ? from[i] * factor : 0;
}

template <class Real>
void restore_relu(const Real* after, Real factor, Real* gradient, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) gradient[i] = after[i] > 0 ? gradient[i] * factor : 0;
}

template <class Real>
void norm_forward(const Norm<Real>& norm, const Real* x, Real* y, std::int64_t begin,
                  std::int64_t end) {
  const Real* HWY_RESTRICT const weight = norm.weight;
  const Real* HWY_RESTRICT const bias = norm.bias;
  const std::int64_t columns = norm.width;
  const auto width = static_cast<Real>(columns);
  for (std::int64_t r = begin; r < end; ++r) {
    const Real* HWY_RESTRICT const from = x + r * columns;
    Real* HWY_RESTRICT const normed = norm.normal + r * columns;
    Real* HWY_RESTRICT const to = y + r * columns;
    const Real mean = sum<Real>(columns, [=](std::int64_t c) { return from[c]; }) / width;
    const Real variance =
        sum<Real>(columns, [=](std::int64_t c) { return (from[c] - mean) * (from[c] - mean); });
    const Real scale = 1 / std::sqrt(variance / width + norm.epsilon);
    norm.inverse[r] = scale;
    for (std::int64_t c = 0; c < columns; ++c) {
      const Real n = (from[c] - mean) * scale;
      normed[c] = n;
      to[c] = n * weight[c] + bias[c];
    }
  }
}

template <class Real>
void norm_backward(const Norm<Real>& norm, const Real* grad_y, Real* grad_x, Real* weight_sums,
                   Real* bias_sums, std::int64_t begin, std::int64_t end) {
  const Real* HWY_RESTRICT const weight = norm.weight;
  Real* HWY_RESTRICT const weights = weight_sums;
  Real* HWY_RESTRICT const biases = bias_sums;
  const std::int64_t columns = norm.width;
  const auto width = static_cast<Real>(columns);
  for (std::int64_t r = begin; r < end; ++r) {
    const Real* HWY_RESTRICT const from = grad_y + r * columns;
    const Real* HWY_RESTRICT const normed = norm.normal + r * columns;
    Real* HWY_RESTRICT const to = grad_x + r * columns;
    const Real scale = norm.inverse[r];
    // The normalised row is invariant to shifts and scalings of x, so the gradient's components
    // along these two directions are subtracted.
    const Real mean =
        sum<Real>(columns, [=](std::int64_t c) { return from[c] * weight[c]; }) / width;
    const Real stretch =
        sum<Real>(columns, [=](std::int64_t c) { return from[c] * weight[c] * normed[c]; }) / width;
    // One loop per result: GCC cannot prove that three results in one loop do not alias.
    for (std::int64_t c = 0; c < columns; ++c) {
      to[c] = scale * (from[c] * weight[c] - mean - normed[c] * stretch);
    }
    for (std::int64_t c = 0; c < columns; ++c) weights[c] += from[c] * normed[c];
    for (std::int64_t c = 0; c < columns; ++c) biases[c] += from[c];
  }
}

template <class Real>
void add(Real* to, const Real* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
}

template <class Real>
void add_columns(const Real* rows, std::int64_t stride, const Real* factors,
                 std::int64_t factor_stride, std::int64_t count, std::int64_t width, Real* sums) {
  Real* HWY_RESTRICT const to = sums;
  for (std::int64_t r = 0; r < count; ++r) {
    const Real* HWY_RESTRICT const from = rows + r * stride;
    if (factors != nullptr) {
      const Real* HWY_RESTRICT const factor = factors + r * factor_stride;
      for (std::int64_t c = 0; c < width; ++c) to[c] += from[c] * factor[c];
    } else {
      for (std::int64_t c = 0; c < width; ++c) to[c] += from[c];
    }
  }
}

/// Returns the maximum. NaN is skipped, unless it is the first number: then the result is NaN.
template <class Real>
HWY_INLINE Real largest_of(const Real* numbers, std::int64_t count) {
  constexpr std::int64_t kMaxima = 32;
  Real lanes[kMaxima];
  for (Real& lane : lanes) lane = numbers[0];
  std::int64_t i = 0;
  for (; i + kMaxima <= count; i += kMaxima) {
    for (std::int64_t lane = 0; lane < kMaxima; ++lane) {
      lanes[lane] = numbers[i + lane] > lanes[lane] ? numbers[i + lane] : lanes[lane];
    }
  }
  Real largest = lanes[0];
  for (; i < count; ++i) largest = numbers[i] > largest ? numbers[i] : largest;
  for (const Real lane : lanes) largest = lane > largest ? lane : largest;
  return largest;
}

template <class Real>
void cross_entropy(const Logits<Real>& rows, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t wanted = rows.wanted[r];
    if (wanted == rows.ignored) continue;
    const Real* HWY_RESTRICT const from = rows.logits + r * rows.row_stride;
    const Real largest = largest_of(from, rows.classes);
    const double exponentials = sum<double>(rows.classes, [=](std::int64_t c) {
      return static_cast<double>(elementary::exp(from[c] - largest));
    });
    const double lse = static_cast<double>(largest) + std::log(exponentials);
    const double share = rows.smoothing;
    double loss = lse - (1.0 - share) * static_cast<double>(from[wanted]);
    if (share > 0.0) {
      const double total =
          sum<double>(rows.classes, [=](std::int64_t c) { return static_cast<double>(from[c]); });
      loss -= share * total / static_cast<double>(rows.classes);
    }
    double* const to = rows.results + kLossResults * r;
    to[0] = loss;
    // The argmax is the first of equal maxima.
    to[1] = from[wanted] == largest && std::find(from, from + wanted, largest) == from + wanted;
    to[2] = static_cast<double>(largest);
    to[3] = exponentials;
  }
}

template <class Real>
void cross_entropy_gradient(const Logits<Real>& rows, double scale_of_all, Real* gradient,
                            std::int64_t begin, std::int64_t end) {
  const auto scale = static_cast<Real>(scale_of_all);
  const auto scaled_spread =
      static_cast<Real>(scale_of_all * rows.smoothing / static_cast<double>(rows.classes));
  const auto rest = static_cast<Real>(1.0 - rows.smoothing);
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t wanted = rows.wanted[r];
    Real* HWY_RESTRICT const to = gradient + r * rows.classes;
    if (wanted == rows.ignored) {
      std::fill(to, to + rows.classes, Real{0});
      continue;
    }
    const Real* HWY_RESTRICT const from = rows.logits + r * rows.row_stride;
    const double* const results = rows.results + kLossResults * r;
    const auto largest = static_cast<Real>(results[2]);
    const auto factor = static_cast<Real>(scale_of_all / results[3]);
    for (std::int64_t c = 0; c < rows.classes; ++c) {
      to[c] = factor * elementary::exp(from[c] - largest) - scaled_spread;
    }
    to[wanted] -= scale * rest;
  }
}

template <class Real>
void adam(const AdamStep<Real>& step, Real* values, const Real* gradients, Real* means,
          Real* squares, std::int64_t count) {
  const AdamStep<Real> s = step;
  Real* HWY_RESTRICT const value = values;
  const Real* HWY_RESTRICT const gradient = gradients;
  Real* HWY_RESTRICT const mean = means;
  Real* HWY_RESTRICT const square = squares;
  for (std::int64_t i = 0; i < count; ++i) {
    const Real g = gradient[i];
    const Real m = s.beta1 * mean[i] + (1 - s.beta1) * g;
    const Real v = s.beta2 * square[i] + (1 - s.beta2) * g * g;
    mean[i] = m;
    square[i] = v;
    value[i] = s.keep * value[i] - s.rate * m / (std::sqrt(v) * s.root_scale + s.epsilon);
  }
}

template <class Real>
double sum_of_squares(const Real* numbers, std::int64_t count) {
  return sum<double>(count, [=](std::int64_t i) {
    const auto number = static_cast<double>(numbers[i]);
    return number * number;
  });
}

template <class Real>
void scale(Real* numbers, Real by, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) numbers[i] *= by;
}

template <class Real>
const Table<Real>& table_of_target() {
  static constexpr Table<Real> kTable = {
      .drop = drop<Real>,
      .restore = restore<Real>,
      .restore_relu = restore_relu<Real>,
      .norm_forward = norm_forward<Real>,
      .norm_backward = norm_backward<Real>,
      .add = add<Real>,
      .add_columns = add_columns<Real>,
      .cross_entropy = cross_entropy<Real>,
      .cross_entropy_gradient = cross_entropy_gradient<Real>,
      .adam = adam<Real>,
      .sum_of_squares = sum_of_squares<Real>,
      .scale = scale<Real>,
  };
  return kTable;
}

const Table<float>& float_table() { return table_of_target<float>(); }
const Table<double>& double_table() { return table_of_target<double>(); }

}  // namespace fovea::nn::passes::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::nn::passes {

HWY_EXPORT(float_table);
HWY_EXPORT(double_table);

template <>
const Table<float>& table<float>() {
  kernels::choose_target();
  return HWY_DYNAMIC_DISPATCH(float_table)();
}

template <>
const Table<double>& table<double>() {
  kernels::choose_target();
  return HWY_DYNAMIC_DISPATCH(double_table)();
}

}  // namespace fovea::nn::passes
#endif
