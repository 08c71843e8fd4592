// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of the tile unit: 2 x 2 sums of products, and the softmax of a block, two keys at
// a time between the products. amx_keys-inl.h arranges them.
//
// Exponents of weights are factor * score - reference, with reference = factor * maximum. One
// rounding, of the reference, is common to all scores of a row, unless the reference is so large
// that its rounding would exceed the range of exponents.

#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/simd/simd-inl.h"
#include "kernels/simd/tile_unit-inl.h"
#include "kernels/tile/amx_numbers-inl.h"
#include "kernels/tile/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// The distance in bytes between rows of scores, weights and contexts.
constexpr std::int64_t kRowBytes = kPanelLanes * static_cast<std::int64_t>(sizeof(float));
/// A row of zeros; loaded 16 times, it is a tile of zeros.
alignas(64) inline constexpr float kZeroRow[16] = {};

/// The largest reference whose rounding matters little.
constexpr float kMaxReference = 0x1p20f;

/// Returns factor * (score - maximum).
HWY_INLINE Vector exponent_of(Vector factor, Vector score, Vector maximum) {
  const Vector reference = hn::Mul(factor, maximum);
  const auto fits = hn::Le(hn::Abs(reference), hn::Set(Floats(), kMaxReference));
  return hn::IfThenElse(fits, hn::MulAdd(score, factor, hn::Neg(reference)),
                        hn::Mul(factor, hn::Sub(score, maximum)));
}

/// Returns the reference of maximum `a` minus that of `b`, as exponent_of() has them.
HWY_INLINE Vector difference_of(Vector factor, Vector a, Vector b) {
  const Vector of_a = hn::Mul(factor, a), of_b = hn::Mul(factor, b);
  const auto fits = hn::Le(hn::Max(hn::Abs(of_a), hn::Abs(of_b)), hn::Set(Floats(), kMaxReference));
  return hn::IfThenElse(fits, hn::Sub(of_a, of_b), hn::Mul(factor, hn::Sub(a, b)));
}

/// The weights of two adjacent keys, in the order of the keys.
struct TwoWeights {
  Vector first, second;
};

/// Sees nothing of the weights of a block (a pass with lenses has another watch).
struct NoWatch {
  static constexpr bool kNone = true;
  static constexpr bool kRare = false;
  struct Place {};

  explicit NoWatch(const Place&) {}
};

/// The softmax of a block, two keys at a time; if kLse or if `Watch` sees the weights, also the
/// sums for lse. Members are not arrays, so that compilers keep them in registers.
template <class Numbers, bool kLse, class Watch = NoWatch>
class BlockWeights {
 public:
  static_assert(kPanelVectors == 2);
  using Place = typename Watch::Place;
  static constexpr bool kExact = kLse || !Watch::kNone;
  static constexpr bool kRare = Watch::kRare;
  static constexpr bool kWatches = !Watch::kNone;

  HWY_INLINE BlockWeights(float factor, const float* maximum, const float* scores, float* weights,
                          std::int64_t keys, const Place& place)
      : watch_(place),
        factor_(hn::Set(Floats(), factor)),
        offset0_(hn::Neg(hn::Mul(factor_, hn::Load(Floats(), maximum)))),
        offset1_(hn::Neg(hn::Mul(factor_, hn::Load(Floats(), maximum + kLanes)))),
        sum0_(hn::Zero(Floats())),
        sum1_(sum0_),
        lse_sum0_(sum0_),
        lse_sum1_(sum0_),
        scores_(scores),
        weights_(weights),
        left_(keys / 2) {}

  HWY_INLINE void two_keys() {
    const TwoWeights a = one_vector<0>(scores_, weights_, offset0_, sum0_, lse_sum0_);
    const TwoWeights b =
        one_vector<1>(scores_ + kLanes, weights_ + kLanes, offset1_, sum1_, lse_sum1_);
    if constexpr (!Watch::kNone) watch_.two_keys(a, b);
    scores_ += 2 * kPanelLanes;
    weights_ += kPanelLanes;
    --left_;
  }
  HWY_INLINE std::int64_t left() const { return left_; }

  /// Returns whether no sum exceeds `most` or is NaN.
  bool within(float most) const {
    const Floats d;
    const Vector m = hn::Set(d, most);
    return hn::AllTrue(d, hn::And(hn::Le(sum0_, m), hn::Le(sum1_, m)));
  }
  void add_to(const Panel& panel) const {
    add(sum0_, panel.sum);
    add(sum1_, panel.sum + kLanes);
    if constexpr (kExact || !Numbers::kSumsRoundedWeights) {
      add(kExact ? lse_sum0_ : sum0_, panel.lse_sum);
      add(kExact ? lse_sum1_ : sum1_, panel.lse_sum + kLanes);
    }
    if constexpr (!Watch::kNone) watch_.store(lse_sum0_, lse_sum1_);
  }

 private:
  template <int kVector>
  HWY_INLINE TwoWeights one_vector(const float* scores, float* weights, Vector offset, Vector& sum,
                                   Vector& lse_sum) {
    const Floats d;
    const Vector x = hn::MulAdd(hn::Load(d, scores), factor_, offset);
    const Vector y = hn::MulAdd(hn::Load(d, scores + kPanelLanes), factor_, offset);
    const Vector first = Numbers::weight(x);
    const Vector second = Numbers::weight(y);
    sum = hn::Add(hn::Add(sum, first), second);
    Numbers::store_rounded(first, second, weights);
    if constexpr (!kExact) return {first, second};
    const TwoWeights exact{Numbers::exact_weight(x), Numbers::exact_weight(y)};
    lse_sum = hn::Add(hn::Add(lse_sum, exact.first), exact.second);
    if constexpr (!Watch::kNone) watch_.template look<kVector>(scores, x, y, exact);
    return exact;
  }
  static HWY_INLINE void add(Vector more, float* to) {
    hn::Store(hn::Add(hn::Load(Floats(), to), more), Floats(), to);
  }

  [[no_unique_address]] Watch watch_;
  Vector factor_, offset0_, offset1_, sum0_, sum1_, lse_sum0_, lse_sum1_;
  const float* scores_;
  float* weights_;
  std::int64_t left_;
};

/// Stands for BlockWeights where there is nothing to do between products.
struct NoWeights {
  static void two_keys() {}
  static std::int64_t left() { return 0; }
};

/// The addresses of four sums that are in tile registers. Each sum is stored just before its
/// register is loaded again.
struct Pending {
  float* at[4];
};

/// One set of 2 x 2 sums over `steps` times 32 products. `a` points to the parts of the first tile
/// of A, `a_next` floats before those of the second one and `a_step` before those of the next step.
/// `b` is [pairs][kPanelLanes], with parts `b_part` floats apart. The sums are added to `from`, or
/// if it is null, to zero.
struct Sums {
  const float* a;
  std::int64_t a_next, a_step;
  const float* b;
  std::int64_t b_part;
  std::int64_t steps;
  const float* from;
  float* to;
};

/// Lambdas that are not inlined early keep what they capture in memory.
#define FOVEA_ALWAYS HWY_ATTR __attribute__((always_inline))

/// Computes 2 x kGroups sums. Sum 2 r + g belongs to tile r of A and group g of queries. The values
/// that are pending in the registers are stored, unless kFirst. Calls between.two_keys() kRows
/// times per step.
template <class Numbers, int kGroups, bool kFirst, int kRows, bool kStreamsB = false, class Between>
HWY_INLINE void four_sums(const Sums& sums, Pending& pending, Between& between) {
  using Unit = TileUnit;
  const float* a = sums.a;
  const float* b = sums.b;
  const std::int64_t from_bytes = sums.from == nullptr ? 0 : kRowBytes;
  const auto start = [&](auto sum) FOVEA_ALWAYS {
    constexpr int kSum = decltype(sum)::value;
    constexpr int kAt = kSum / 2 * kUnitRows * kPanelLanes + kSum % 2 * 16;
    if constexpr (!kFirst) Unit::template store<kSum>(pending.at[kSum], kRowBytes);
    pending.at[kSum] = sums.to + kAt;
    Unit::template load<kSum>(sums.from == nullptr ? kZeroRow : sums.from + kAt, from_bytes);
  };
  // Product `i` of a step, and its share of the rows.
  const auto multiply = [&](auto sum, auto product) FOVEA_ALWAYS {
    constexpr int kSum = decltype(sum)::value, i = decltype(product)::value;
    constexpr int kProducts = Numbers::kParts == 1 ? 4 : 24;
    if constexpr (kSum % 2 < kGroups) Unit::template multiply<kSum, 4 + kSum / 2, 6 + kSum % 2>();
    constexpr int kHere = (i + 1) * kRows / kProducts - i * kRows / kProducts;
    for (int n = 0; n < kHere; ++n) {
      if (between.left() > 0) between.two_keys();
    }
  };
  const auto load_b = [&](auto group, int part) FOVEA_ALWAYS {
    constexpr int kGroup = decltype(group)::value;
    if constexpr (kGroup < kGroups) {
      const float* const from = b + part * sums.b_part + kGroup * 16;
      if constexpr (kStreamsB) {
        Unit::template stream<6 + kGroup>(from, kRowBytes);
      } else {
        Unit::template load<6 + kGroup>(from, kRowBytes);
      }
    }
  };
  const auto load_a = [&](auto tile, int part) FOVEA_ALWAYS {
    constexpr int kTile = decltype(tile)::value;
    Unit::template stream<4 + kTile>(a + kTile * sums.a_next + part * kUnitFloats, kUnitRowBytes);
  };
#define FOVEA_INT(n) \
  std::integral_constant<int, n> {}
  const auto one_step = [&](auto is_first) FOVEA_ALWAYS {
    constexpr bool first = decltype(is_first)::value;
    constexpr int kLast = Numbers::kParts - 1;
    load_a(FOVEA_INT(0), kLast);
    load_b(FOVEA_INT(0), 0);
    if constexpr (first) start(FOVEA_INT(0));
    multiply(FOVEA_INT(0), FOVEA_INT(0));
    load_b(FOVEA_INT(1), 0);
    if constexpr (kGroups > 1 && first) start(FOVEA_INT(1));
    multiply(FOVEA_INT(1), FOVEA_INT(1));
    load_a(FOVEA_INT(1), kLast);
    if constexpr (first) start(FOVEA_INT(2));
    multiply(FOVEA_INT(2), FOVEA_INT(2));
    if constexpr (kGroups > 1 && first) start(FOVEA_INT(3));
    multiply(FOVEA_INT(3), FOVEA_INT(3));
    if constexpr (Numbers::kParts == 3) {
      // Small terms first: a3 b1 (above), a2 b1, a2 b2, a1 b2, a1 b3, a1 b1. One operand changes at
      // a time.
      const auto new_a = [&](int part, auto i) FOVEA_ALWAYS {
        constexpr int n = decltype(i)::value;
        load_a(FOVEA_INT(0), part);
        multiply(FOVEA_INT(0), FOVEA_INT(n));
        multiply(FOVEA_INT(1), FOVEA_INT(n + 1));
        load_a(FOVEA_INT(1), part);
        multiply(FOVEA_INT(2), FOVEA_INT(n + 2));
        multiply(FOVEA_INT(3), FOVEA_INT(n + 3));
      };
      const auto new_b = [&](int part, auto i) FOVEA_ALWAYS {
        constexpr int n = decltype(i)::value;
        load_b(FOVEA_INT(0), part);
        multiply(FOVEA_INT(0), FOVEA_INT(n));
        multiply(FOVEA_INT(2), FOVEA_INT(n + 1));
        load_b(FOVEA_INT(1), part);
        multiply(FOVEA_INT(1), FOVEA_INT(n + 2));
        multiply(FOVEA_INT(3), FOVEA_INT(n + 3));
      };
      new_a(1, FOVEA_INT(4));
      new_b(1, FOVEA_INT(8));
      new_a(0, FOVEA_INT(12));
      new_b(2, FOVEA_INT(16));
      new_b(0, FOVEA_INT(20));
    }
    a += sums.a_step;
    b += kUnitRows * kPanelLanes;
  };
  one_step(std::true_type());
  for (std::int64_t step = 1; step < sums.steps; ++step) one_step(std::false_type());
#undef FOVEA_INT
}

#undef FOVEA_ALWAYS

/// Stores the pending sums.
template <int kGroups>
HWY_INLINE void store_sums(const Pending& pending) {
  TileUnit::store<0>(pending.at[0], kRowBytes);
  if constexpr (kGroups > 1) TileUnit::store<1>(pending.at[1], kRowBytes);
  TileUnit::store<2>(pending.at[2], kRowBytes);
  if constexpr (kGroups > 1) TileUnit::store<3>(pending.at[3], kRowBytes);
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
