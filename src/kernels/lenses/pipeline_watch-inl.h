// SPDX-License-Identifier: Apache-2.0
//
// Updates the lenses with the weights of a block while the pipeline of the tile unit computes them
// (amx_lenses-inl.h).

#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <immintrin.h>

#include "fovea/lenses.h"

#include "kernels/simd/simd-inl.h"
#include "kernels/tile/amx_numbers-inl.h"
#include "kernels/tile/amx_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Sums of distances are about this key of a block.
constexpr std::int64_t kMiddle = 32;
/// Smaller exponents have no weight.
constexpr float kLeastExponent = -150.0f;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

/// The keys of a part of a block, and the memory for its results.
struct WatchPlace {
  std::int64_t block, first_key, keys;  // the keys from `first_key` of the block on
  const float* least;                   // [lanes], scores above it are hits
  Pool pool;
  const std::int64_t* column_ends;  // the first key after the current column of the map
  float* cell;                      // sums of the current column
  // [lanes] each, hits [2][lanes]
  float *sums, *exponents, *distances, *squares;
  std::uint32_t* hits;
};

/// The sums of a block for the lenses; a watch of BlockWeights. Without kAny, only for
/// blocks without hidden keys and pools of sums. Members are not arrays, so that compilers keep
/// them in registers.
template <bool kAny>
class PipelineWatch {
 public:
  static constexpr bool kNone = false;
  static constexpr bool kRare = kAny;

  using Place = WatchPlace;

  HWY_INLINE explicit PipelineWatch(const Place& place)
      : least0_(hn::Load(Floats(), place.least)),
        least1_(hn::Load(Floats(), place.least + kLanes)),
        exponents0_(hn::Zero(Floats())),
        exponents1_(exponents0_),
        distances0_(exponents0_),
        distances1_(exponents0_),
        squares0_(exponents0_),
        squares1_(exponents0_),
        cell0_(exponents0_),
        cell1_(exponents0_),
        hits0_(hn::Zero(Words())),
        hits1_(hits0_),
        key_(place.first_key),
        half_(place.keys > 32 ? place.first_key + 32 : kNever),
        column_end_(*place.column_ends - place.block),
        column_ends_(place.column_ends),
        cell_(place.cell),
        place_(place) {}

  template <int kVector>
  HWY_INLINE void look(const float* scores, Vector x, Vector y, const TwoWeights& w) {
    const Floats d;
    if constexpr (kAny) {  // the exponent of a hidden key is -inf, and 0 * -inf is NaN
      x = hn::Max(x, hn::Set(d, kLeastExponent));
      y = hn::Max(y, hn::Set(d, kLeastExponent));
    }
    const float* const distance = kDistances + key_;
    const float* const square = kSquares + key_;
    const auto add = [&](Vector weight, Vector exponent, std::int64_t i, Vector & exponents,
                         Vector & distances, Vector & squares) HWY_ATTR
        __attribute__((always_inline)) {
      exponents = hn::MulAdd(weight, exponent, exponents);
      distances = hn::MulAdd(weight, hn::Set(d, distance[i]), distances);
      squares = hn::MulAdd(weight, hn::Set(d, square[i]), squares);
    };
    const auto mark = [&](const float* score, Vector least, std::int64_t i, hn::Vec<Words>& hits)
        HWY_ATTR __attribute__((always_inline)) {
      const __mmask16 above = _mm512_cmp_ps_mask(least.raw, _mm512_load_ps(score), _CMP_LT_OQ);
      const __m512i bit = _mm512_set1_epi32(static_cast<int>(kBits[key_ + i]));
      hits.raw = _mm512_mask_or_epi32(hits.raw, above, hits.raw, bit);
    };
    if constexpr (kVector == 0) {
      add(w.first, x, 0, exponents0_, distances0_, squares0_);
      mark(scores, least0_, 0, hits0_);
      add(w.second, y, 1, exponents0_, distances0_, squares0_);
      mark(scores + kPanelLanes, least0_, 1, hits0_);
    } else {
      add(w.first, x, 0, exponents1_, distances1_, squares1_);
      mark(scores, least1_, 0, hits1_);
      add(w.second, y, 1, exponents1_, distances1_, squares1_);
      mark(scores + kPanelLanes, least1_, 1, hits1_);
    }
  }
  HWY_INLINE void two_keys(const TwoWeights& a, const TwoWeights& b) {
    one_key(a.first, b.first);
    one_key(a.second, b.second);
    if (key_ == half_) [[unlikely]] {
      store_hits(0);
      hits0_ = hits1_ = hn::Zero(Words());
    }
  }

  /// Stores the sums of the part, with those of its weights, and of its last cell.
  void store(Vector sum0, Vector sum1) const {
    const auto store = [](Vector a, Vector b, float* to) HWY_ATTR {
      hn::Store(a, Floats(), to);
      hn::Store(b, Floats(), to + kLanes);
    };
    store(sum0, sum1, place_.sums);
    store(exponents0_, exponents1_, place_.exponents);
    store(distances0_, distances1_, place_.distances);
    store(squares0_, squares1_, place_.squares);
    store(cell0_, cell1_, cell_);
    store_hits(half_ == kNever ? 0 : 1);
    if (half_ == kNever) std::fill_n(place_.hits + kPanelLanes, kPanelLanes, 0u);
  }

 private:
  HWY_INLINE void one_key(Vector a, Vector b) {
    if (kAny && place_.pool == Pool::kMax) {
      cell0_ = hn::Max(cell0_, a);
      cell1_ = hn::Max(cell1_, b);
    } else {
      cell0_ = hn::Add(cell0_, a);
      cell1_ = hn::Add(cell1_, b);
    }
    if (++key_ == column_end_) [[unlikely]] {
      const Floats d;
      hn::Store(cell0_, d, cell_);
      hn::Store(cell1_, d, cell_ + kLanes);
      cell0_ = cell1_ = hn::Zero(d);
      cell_ += kPanelLanes;
      column_end_ = *++column_ends_ - place_.block;
    }
  }
  void store_hits(std::int64_t half) const {
    hn::Store(hits0_, Words(), place_.hits + half * kPanelLanes);
    hn::Store(hits1_, Words(), place_.hits + half * kPanelLanes + kLanes);
  }

  static constexpr auto kTables = [] {
    struct {
      float distances[64], squares[64];
      std::uint32_t bits[64];
    } tables{};
    for (int k = 0; k < 64; ++k) {
      const int distance = k - static_cast<int>(kMiddle);
      tables.distances[k] = static_cast<float>(distance);
      tables.squares[k] = static_cast<float>(distance * distance);
      tables.bits[k] = 1u << k % 32;
    }
    return tables;
  }();
  static constexpr const float* kDistances = kTables.distances;
  static constexpr const float* kSquares = kTables.squares;
  static constexpr const std::uint32_t* kBits = kTables.bits;

  Vector least0_, least1_;
  Vector exponents0_, exponents1_, distances0_, distances1_, squares0_, squares1_, cell0_, cell1_;
  hn::Vec<Words> hits0_, hits1_;
  std::int64_t key_, half_, column_end_;
  const std::int64_t* column_ends_;
  float* cell_;
  const Place& place_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
