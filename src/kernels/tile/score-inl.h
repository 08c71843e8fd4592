// SPDX-License-Identifier: Apache-2.0
//
// The stages between the first product and the softmax: softcap, a custom function, position
// biases, an additive bias, masks. Each stage is a separate pass over one tile, which is in the L1
// cache; a fused pass would need a kernel for each combination. (A bias alone is usually fused with
// the product, stages-inl.h.) Scores are stored multiplied by log2(e), as required by the softmax.

#if defined(FOVEA_KERNELS_TILE_SCORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_SCORE_INL_H_
#undef FOVEA_KERNELS_TILE_SCORE_INL_H_
#else
#define FOVEA_KERNELS_TILE_SCORE_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "fovea/simd_math-inl.h"

#include "kernels/simd/simd-inl.h"
#include "kernels/tile/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
/// The maximum of no scores.
constexpr float kLowest = std::numeric_limits<float>::lowest();

/// The maximum number of keys whose scores a stage processes at once: their scores fit in the L1
/// cache. A multiple of kTileRows.
constexpr std::int64_t kStageKeys = 32;
static_assert(kStageKeys % kTileRows == 0);

/// Computes scores *= factor for `keys` keys and `lanes` lanes.
HWY_INLINE void scale_tiles(float* HWY_RESTRICT scores, std::int64_t keys, std::int64_t lanes,
                            float factor) {
  const Floats d;
  for (std::int64_t k = 0; k < keys; ++k) {
    for (std::int64_t lane = 0; lane < lanes; lane += kLanes) {
      float* at = scores + k * kPanelLanes + lane;
      hn::Store(hn::Mul(hn::Set(d, factor), hn::Load(d, at)), d, at);
    }
  }
}

/// Replaces scores by factor * tanh(scores), for `keys` keys and kVectors vectors of queries.
/// Raises `maximum` [kVectors * kLanes] to the maximum of each lane.
template <int kVectors>
HWY_INLINE void softcap_tiles(float* HWY_RESTRICT scores, std::int64_t keys, float factor,
                              float* HWY_RESTRICT maximum) {
  const Floats d;
  const fovea::HWY_NAMESPACE::simd_math::Tanh<Floats> tanh(d, factor);
  Vector most[kVectors], x[kVectors];
  HWY_UNROLL(3)
  for (int v = 0; v < kVectors; ++v) most[v] = hn::Load(d, maximum + v * kLanes);
  std::int64_t k = 0;
  const auto load = [&]() HWY_ATTR {
    HWY_UNROLL(3)
    for (int v = 0; v < kVectors; ++v) x[v] = hn::Load(d, scores + k * kPanelLanes + v * kLanes);
  };
  const auto store = [&]() HWY_ATTR {
    HWY_UNROLL(3)
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(x[v], d, scores + k * kPanelLanes + v * kLanes);
      most[v] = hn::Max(most[v], x[v]);
    }
  };
  // The second loop takes over at the first key with a score that is not near zero. One loop with a
  // branch per key would cause many mispredictions.
  for (; k < keys; ++k) {
    load();
    if (!tanh.template all_near_zero<kVectors>(x)) break;
    tanh.template apply_near_zero<kVectors>(x, x);
    store();
  }
  for (; k < keys; ++k) {
    load();
    tanh.template apply<kVectors>(x, x);
    store();
  }
  HWY_UNROLL(3)
  for (int v = 0; v < kVectors; ++v) hn::Store(most[v], d, maximum + v * kLanes);
}

/// Computes derivative *= 1 - tanh^2 for `keys` keys and `lanes` lanes. `scores` holds factor *
/// tanh.
HWY_INLINE void softcap_derivative_tiles(const float* HWY_RESTRICT scores, std::int64_t keys,
                                         std::int64_t lanes, float factor,
                                         float* HWY_RESTRICT derivative) {
  const Floats d;
  const Vector one = hn::Set(d, 1.0f);
  const Vector unit = hn::Set(d, 1.0f / factor);
  for (std::int64_t k = 0; k < keys; ++k) {
    for (std::int64_t lane = 0; lane < lanes; lane += kLanes) {
      const Vector t = hn::Mul(unit, hn::Load(d, scores + k * kPanelLanes + lane));
      float* at = derivative + k * kPanelLanes + lane;
      // 1 - t * t would lose digits by cancellation if |t| is near 1.
      const Vector slope = hn::Mul(hn::Sub(one, t), hn::Add(one, t));
      hn::Store(hn::Mul(slope, hn::Load(d, at)), d, at);
    }
  }
}

/// Adds by_distance[lane - key] to the scores of `keys` keys. The bias depends only on the distance
/// of query and key, so adjacent lanes of a panel read adjacent table entries. If either the score
/// or the bias is -inf, the result is -inf, even if the other is NaN or infinity.
HWY_INLINE void add_position_bias(float* HWY_RESTRICT scores, std::int64_t keys, std::int64_t lanes,
                                  const float* HWY_RESTRICT by_distance) {
  const Floats d;
  const Vector hidden = hn::Set(d, kMinusInfinity);
  for (std::int64_t k = 0; k < keys; ++k) {
    for (std::int64_t lane = 0; lane < lanes; lane += kLanes) {
      float* at = scores + k * kPanelLanes + lane;
      const Vector bias = hn::LoadU(d, by_distance + lane - k);
      const Vector score = hn::Load(d, at);
      const auto masks = hn::Or(hn::Eq(score, hidden), hn::Eq(bias, hidden));
      hn::Store(hn::IfThenElse(masks, hidden, hn::Add(score, bias)), d, at);
    }
  }
}

/// Adds factor * bias to the scores of one tile, both [kTileRows][kPanelLanes]. If either the score
/// or the bias is -inf, the result is -inf, even if the other is NaN or infinity. Finite biases
/// never give -inf: the sum is clamped, because -FLT_MAX, which some callers use as a mask, would
/// overflow.
HWY_INLINE void add_bias_tile(float* HWY_RESTRICT scores, std::int64_t lanes,
                              const float* HWY_RESTRICT bias, float factor) {
  const Floats d;
  const Vector hidden = hn::Set(d, kMinusInfinity);
  for (std::int64_t k = 0; k < kTileRows; ++k) {
    for (std::int64_t lane = 0; lane < lanes; lane += kLanes) {
      float* at = scores + k * kPanelLanes + lane;
      const Vector score = hn::Load(d, at);
      const Vector b = hn::Load(d, bias + k * kPanelLanes + lane);
      const auto masks = hn::Or(hn::Eq(score, hidden), hn::Eq(b, hidden));
      const Vector sum = hn::MulAdd(hn::Set(d, factor), b, score);
      const Vector number =
          fovea::HWY_NAMESPACE::simd_math::at_least(d, std::numeric_limits<float>::lowest(), sum);
      hn::Store(hn::IfThenElse(masks, hidden, number), d, at);
    }
  }
}

/// Sets scores to -inf for keys outside each lane's range [begin, end), for one tile whose first
/// key is `key`. `key`, `begin` and `end` share one origin.
HWY_INLINE void mask_tile_by_range(float* HWY_RESTRICT scores, std::int64_t lanes, std::int32_t key,
                                   const std::int32_t* HWY_RESTRICT begin,
                                   const std::int32_t* HWY_RESTRICT end) {
  const Floats d;
  const Ints di;
  const Vector hidden = hn::Set(d, kMinusInfinity);
  for (std::int64_t lane = 0; lane < lanes; lane += kLanes) {
    const auto from = hn::Load(di, begin + lane);
    const auto to = hn::Load(di, end + lane);
    for (std::int32_t k = 0; k < kTileRows; ++k) {
      float* at = scores + k * kPanelLanes + lane;
      const auto here = hn::Set(di, key + k);
      const auto outside = hn::Or(hn::Gt(from, here), hn::Not(hn::Gt(to, here)));
      hn::Store(hn::IfThenElse(hn::RebindMask(d, outside), hidden, hn::Load(d, at)), d, at);
    }
  }
}

/// Sets scores to -inf where `visible` is 0, for one tile. `visible` is [lanes][stride] and begins
/// at the tile's first key. `rows` and `turned` are scratch memory for one tile each.
HWY_INLINE void mask_tile_by_rows(float* HWY_RESTRICT scores, std::int64_t lanes,
                                  const std::uint8_t* HWY_RESTRICT visible, std::int64_t stride,
                                  float* HWY_RESTRICT rows, float* HWY_RESTRICT turned) {
  const Floats d;
  const hn::CappedTag<float, kTileRows> dk;
  const hn::RebindToSigned<decltype(dk)> dki;
  const hn::Rebind<std::uint8_t, decltype(dk)> bytes;
  constexpr auto kStep = static_cast<std::int64_t>(hn::MaxLanes(decltype(dk)()));
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    for (std::int64_t k = 0; k < kTileRows; k += kStep) {
      const auto seen = hn::PromoteTo(dki, hn::LoadU(bytes, visible + lane * stride + k));
      const auto gone = hn::RebindMask(dk, hn::Eq(seen, hn::Zero(dki)));
      hn::StoreU(hn::IfThenElseZero(gone, hn::Set(dk, kMinusInfinity)), dk,
                 rows + lane * kTileRows + k);
    }
  }
  transpose(Numbers<float>{rows}, kTileRows, lanes, kTileRows, turned, kPanelLanes);
  const Vector hidden = hn::Set(d, kMinusInfinity);
  for (std::int64_t k = 0; k < kTileRows; ++k) {
    for (std::int64_t lane = 0; lane < lanes; lane += kLanes) {
      float* at = scores + k * kPanelLanes + lane;
      const auto outside = hn::Eq(hn::Load(d, turned + k * kPanelLanes + lane), hidden);
      hn::Store(hn::IfThenElse(outside, hidden, hn::Load(d, at)), d, at);
    }
  }
}

/// Computes maximum = max(maximum, scores) over the rows of one tile. A NaN score may or may not
/// propagate to the maximum; the later subtraction of the maximum gives NaN in either case.
HWY_INLINE void raise_maximum(const float* HWY_RESTRICT scores, std::int64_t lanes,
                              float* HWY_RESTRICT maximum) {
  const Floats d;
  for (std::int64_t lane = 0; lane < lanes; lane += kLanes) {
    Vector most = hn::Load(d, maximum + lane);
    for (std::int64_t k = 0; k < kTileRows; ++k) {
      most = hn::Max(most, hn::Load(d, scores + k * kPanelLanes + lane));
    }
    hn::Store(most, d, maximum + lane);
  }
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_SCORE_INL_H_
