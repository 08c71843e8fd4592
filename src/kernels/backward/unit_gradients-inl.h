// SPDX-License-Identifier: Apache-2.0
//
// Weights and score gradients of 32 keys by 32 queries, as operands of the tile unit
// (tile_products-inl.h), two keys at a time, between the products.

#pragma once

#include <cstdint>

#include "fovea/simd_math-inl.h"

#include "kernels/simd/simd-inl.h"
#include "kernels/simd/tile_unit-inl.h"
#include "kernels/tile/amx_numbers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Returns 2^x, as RowProducts::weight().
template <class Numbers>
HWY_INLINE Vector weight_of(Vector x) {
  return Numbers::exact_weight(fovea::HWY_NAMESPACE::simd_math::at_most(Floats(), 0.0f, x));
}

/// The memory of the operands of a unit: keys in ascending order, two at a time.
template <class Numbers>
struct UnitOperands {
  float* weights;          // P, two tiles of [parts][16 keys][16 pairs of queries i and i + 16]
  float* rows;             // dS, likewise
  float* pairs;            // dS, [16 pairs of adjacent keys][32 queries]; its parts are
  std::int64_t pair_part;  // as many floats apart

  /// Stores the weights of the keys a and b, for both vectors of queries.
  HWY_INLINE void store_weights(Vector a0, Vector a1, Vector b0, Vector b1) {
    Numbers::store_pair(a0, a1, weights, kUnitFloats);
    Numbers::store_pair(b0, b1, weights + kLanes, kUnitFloats);
    weights += 2 * kLanes;
  }
  HWY_INLINE void store_gradients(Vector a0, Vector a1, Vector b0, Vector b1) {
    Numbers::store_pair(a0, a1, rows, kUnitFloats);
    Numbers::store_pair(b0, b1, rows + kLanes, kUnitFloats);
    Numbers::store_pair(a0, b0, pairs, pair_part);
    Numbers::store_pair(a1, b1, pairs + kLanes, pair_part);
    rows += 2 * kLanes;
    pairs += 2 * kLanes;
  }
  /// Must be called after 16 keys.
  HWY_INLINE void next_tile() {
    weights += (Numbers::kParts - 1) * kUnitFloats;
    rows += (Numbers::kParts - 1) * kUnitFloats;
  }
};

/// Computes P = 2^(factor * score - log2_sum) and dS = P (dP - delta) of a unit without masks and
/// options. `scores` and `gradients` (dP) are [32][kPanelLanes]; `log2_sum` and `delta` have
/// kPanelLanes elements. Members are not arrays, so that compilers keep them in registers.
template <class Numbers>
class UnitGradients {
 public:
  static_assert(kPanelVectors == 2);

  UnitGradients(float factor, const float* log2_sum, const float* delta, const float* scores,
                const float* gradients, const UnitOperands<Numbers>& to)
      : factor_(hn::Set(Floats(), factor)),
        log2_sum0_(hn::Load(Floats(), log2_sum)),
        log2_sum1_(hn::Load(Floats(), log2_sum + kLanes)),
        delta0_(hn::Load(Floats(), delta)),
        delta1_(hn::Load(Floats(), delta + kLanes)),
        scores_(scores),
        gradients_(gradients),
        to_(to) {}

  HWY_INLINE void two_keys() {
    const Floats d;
    const Vector a0 = weight(scores_, log2_sum0_);
    const Vector a1 = weight(scores_ + kLanes, log2_sum1_);
    const Vector b0 = weight(scores_ + kPanelLanes, log2_sum0_);
    const Vector b1 = weight(scores_ + kPanelLanes + kLanes, log2_sum1_);
    to_.store_weights(a0, a1, b0, b1);
    const float* const from = gradients_;
    const auto gradient = [&](Vector weight, const float* at, Vector delta) HWY_ATTR {
      const auto none = hn::Eq(weight, hn::Zero(d));
      return hn::IfThenZeroElse(none, hn::Mul(weight, hn::Sub(hn::Load(d, at), delta)));
    };
    to_.store_gradients(gradient(a0, from, delta0_), gradient(a1, from + kLanes, delta1_),
                        gradient(b0, from + kPanelLanes, delta0_),
                        gradient(b1, from + kPanelLanes + kLanes, delta1_));
    scores_ += 2 * kPanelLanes;
    gradients_ += 2 * kPanelLanes;
    if (--left_ == 8) to_.next_tile();
  }
  HWY_INLINE std::int64_t left() const { return left_; }

 private:
  HWY_INLINE Vector weight(const float* score, Vector log2_sum) const {
    return weight_of<Numbers>(hn::MulSub(factor_, hn::Load(Floats(), score), log2_sum));
  }

  Vector factor_, log2_sum0_, log2_sum1_, delta0_, delta1_;
  const float* scores_;
  const float* gradients_;
  UnitOperands<Numbers> to_;
  std::int64_t left_ = 16;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
