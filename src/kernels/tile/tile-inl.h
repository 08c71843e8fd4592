// SPDX-License-Identifier: Apache-2.0
//
// The micro-kernel of both products of attention and of two of the five products of its gradients
// (the others use row_tile-inl.h):
//
//   C[i][lane] = sum over c of A[c][i] * B[c][lane]
//
// where i counts the rows of a tile (keys for the scores, value dimensions for the context) and
// lanes hold the queries of a panel. A has kRows elements per step, which are broadcast one at a
// time; B has kVectors vectors per step. The tile of C stays in registers for all steps. A step has
// 24 fused multiply-adds for 3 vector loads and 8 broadcast loads (AVX-512), so throughput is
// limited only by the two FMA pipes and reaches 97-98 % of their peak.
//
// Lanes hold queries, whereas most kernels lay out keys across lanes, because
//   - the softmax of a row is then vertical: no horizontal maximum or sum, no scalar factor;
//   - one layout serves both products: P, computed in place of the scores, is B of the second;
//   - head dimensions need no padding: they are steps in the first product and rows in the second;
//   - B (a panel of queries or weights) is small and stays in the L1 cache, while keys and values
//     are streamed once per panel of 48 queries rather than once per 6 queries.

#if defined(FOVEA_KERNELS_TILE_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_TILE_INL_H_
#undef FOVEA_KERNELS_TILE_TILE_INL_H_
#else
#define FOVEA_KERNELS_TILE_TILE_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

enum class Finish {
  kStore,       // C = sum
  kMaximum,     // C = sum; per_lane = max(per_lane, maximum of C over the rows)
  kAddMaximum,  // C = scale * sum + factor * addend; per_lane as for kMaximum
  kAccumulate,  // C = per_lane * C + sum
};

/// The numbers that kAddMaximum adds: row i of C has its numbers at `numbers` + i * `stride`.
/// `scale` is ignored, as if it were 1, if Arithmetic::kScalesQueries.
struct Addend {
  const float* numbers;
  std::int64_t stride;
  float factor, scale;
};

/// A callback for tile() that does nothing.
struct NothingBetween {
  static constexpr std::int64_t kParts = 1;
  HWY_INLINE void operator()() const {}
};

/// Computes one tile of C. Shapes: a [steps][kRows], b [steps][kPanelLanes],
/// c [kRows][kPanelLanes], per_lane [kVectors * kLanes], unused by kStore. b, c and per_lane point
/// to the first of the kVectors vectors. Calls between() Between::kParts times, at equal distances
/// in the loop over steps.
template <class Arithmetic, int kRows, int kVectors, Finish kFinish, class Between = NothingBetween>
HWY_INLINE void tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::int64_t steps,
                     float* HWY_RESTRICT c, float* HWY_RESTRICT per_lane = nullptr,
                     const Addend& addend = {}, Between&& between = Between()) {
  constexpr bool kFindsMaximum = kFinish == Finish::kMaximum || kFinish == Finish::kAddMaximum;
  constexpr bool kPerLane = kFindsMaximum || kFinish == Finish::kAccumulate;
  const Floats d;
  Vector sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Zero(d);
  }
  constexpr std::int64_t kParts = std::remove_reference_t<Between>::kParts;
  std::int64_t step = 0;
  for (std::int64_t part = 1; part <= kParts; ++part) {
    for (const std::int64_t end = steps * part / kParts; step < end; ++step) {
      Vector row[kVectors];
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) row[v] = hn::Load(d, b + v * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const Vector x = hn::Set(d, a[i]);
#pragma GCC unroll 3
        for (int v = 0; v < kVectors; ++v) {
          sum[i][v] = Arithmetic::multiply_add(x, row[v], sum[i][v]);
        }
      }
      a += kRows;
      b += kPanelLanes;
    }
    between();
  }
#pragma GCC unroll 3
  for (int v = 0; v < kVectors; ++v) {
    Vector lanes = hn::Zero(d);
    if constexpr (kPerLane) lanes = hn::Load(d, per_lane + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      float* HWY_RESTRICT to = c + i * kPanelLanes + v * kLanes;
      if constexpr (kFinish == Finish::kAccumulate) {
        sum[i][v] = hn::MulAdd(lanes, hn::Load(d, to), sum[i][v]);
      } else if constexpr (kFinish == Finish::kAddMaximum) {
        const Vector more = hn::LoadU(d, addend.numbers + i * addend.stride + v * kLanes);
        if constexpr (!Arithmetic::kScalesQueries) {
          sum[i][v] = hn::Mul(hn::Set(d, addend.scale), sum[i][v]);
        }
        sum[i][v] = hn::MulAdd(hn::Set(d, addend.factor), more, sum[i][v]);
      }
      if constexpr (kFindsMaximum) lanes = hn::Max(lanes, sum[i][v]);
      hn::Store(sum[i][v], d, to);
    }
    if constexpr (kFindsMaximum) hn::Store(lanes, d, per_lane + v * kLanes);
  }
}

/// Calls tile() with a row count from 1 to kTileRows that is only known at run time.
template <class Arithmetic, int kVectors, Finish kFinish, int kRows = kTileRows>
HWY_INLINE void tile_of(std::int64_t rows, const float* a, const float* b, std::int64_t steps,
                        float* c, float* per_lane) {
  if (rows == kRows) {
    tile<Arithmetic, kRows, kVectors, kFinish>(a, b, steps, c, per_lane);
  } else if constexpr (kRows > 1) {
    tile_of<Arithmetic, kVectors, kFinish, kRows - 1>(rows, a, b, steps, c, per_lane);
  }
}

/// Calls `act` with the number of vectors as a compile-time constant.
template <class Act>
HWY_INLINE void with_vectors(std::int64_t vectors, const Act& act) {
  switch (vectors) {
    case 1:
      return act(std::integral_constant<int, 1>());
    case 2:
      return act(std::integral_constant < int, kPanelVectors >= 2 ? 2 : 1 > ());
    default:
      return act(std::integral_constant < int, kPanelVectors >= 3 ? 3 : kPanelVectors > ());
  }
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_TILE_INL_H_
