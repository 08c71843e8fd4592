// SPDX-License-Identifier: Apache-2.0
//
// The largest scores of each row, with one row per lane (amx_lenses-inl.h). PanelLenses has the
// lists of all rows as [k][kPanelLanes], in descending order. Scores above the last one of their
// row are marked by bits; one key of each row is inserted at a time.

#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <immintrin.h>

#include "kernels/lenses/lenses.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/tile/amx_numbers-inl.h"
#include "kernels/tile/amx_sums-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

class LaneTopKeys {
 public:
  explicit LaneTopKeys(std::int64_t k) : k_(k) {}

  bool any() const { return k_ > 0; }

  void open(std::int64_t rows, PanelLenses& seen) const {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    std::fill_n(seen.top_scores, length() * kPanelLanes, -kInfinity);
    std::fill_n(seen.top_keys, length() * kPanelLanes, -1);
    // Lanes without a row, or all of them, accept no score.
    const std::int64_t accept = any() ? rows : 0;
    std::fill_n(seen.top_least, accept, -kInfinity);
    std::fill_n(seen.top_least + accept, kPanelLanes - accept, kInfinity);
    seen.top_begun = !any();
  }

  /// Raises the thresholds of a panel's first keys to a lower bound of the k-th largest score, the
  /// k-th largest of the maxima of groups of keys.
  void begin(const float* scores, std::int64_t keys, PanelLenses& seen) const {
    if (seen.top_begun) return;
    seen.top_begun = true;
    std::int64_t group = 1;
    while (keys / (group * 2) >= 2 * k_) group *= 2;
    if (keys / group < k_ || k_ > kMostBounded) return;
    for (std::int64_t lane = 0; lane < kPanelLanes; lane += kLanes) {
      raise_least(scores + lane, keys, group, seen.top_least + lane);
    }
  }

  /// Inserts keys of the rows of one vector, from `lane` on. Bit i of hits[0][lane] is key
  /// `first_key` + i, whose score is in row i of `scores` [64][kPanelLanes]; hits[1] is for the 32
  /// keys after those.
  HWY_INLINE void insert(const float* scores, std::int64_t first_key, std::int64_t lane,
                         const std::uint32_t* hits, PanelLenses& seen) const {
    const __m512i low = _mm512_load_si512(hits + lane);
    const __m512i high = _mm512_load_si512(hits + kPanelLanes + lane);
    const __m512i both = _mm512_or_si512(low, high);
    if (_mm512_test_epi32_mask(both, both) == 0) return;
    float* const list = seen.top_scores + lane;
    std::int32_t* const keys = seen.top_keys + lane;
    if (k_ == 1) {
      insert_all<1>(scores, first_key, low, high, list, keys);
    } else if (k_ <= kFew) {
      insert_all<kFew>(scores, first_key, low, high, list, keys);
    } else {
      insert_all<0>(scores, first_key, low, high, list, keys);
    }
    const Floats d;
    float* const least = seen.top_least + lane;
    hn::Store(hn::Max(hn::Load(d, least), hn::Load(d, list + (k_ - 1) * kPanelLanes)), d, least);
  }

  Vector largest(const PanelLenses& seen, std::int64_t lane) const {
    return hn::Load(Floats(), seen.top_scores + lane);
  }
  std::int64_t largest_key(const PanelLenses& seen, std::int64_t lane) const {
    return seen.top_keys[lane];
  }

  /// Writes the lists of the panel's rows. `largest` has the largest weight of each row.
  void write(const Panel& panel, const PanelLenses& seen, const ForwardHead& head,
             const float* largest, float score_factor) const {
    const Floats d;
    const HeadLenses& to = *head.lenses;
    HWY_ALIGN float weights[kPanelLanes];
    for (std::int64_t n = 0; n < k_; ++n) {
      const float* const scores = seen.top_scores + n * kPanelLanes;
      const std::int32_t* const keys = seen.top_keys + n * kPanelLanes;
      for (std::int64_t lane = 0; lane < kPanelLanes; lane += kLanes) {
        const Vector x =
            hn::Mul(hn::Set(d, score_factor),
                    hn::Sub(hn::Load(d, scores + lane), hn::Load(d, seen.top_scores + lane)));
        hn::Store(hn::Mul(hn::Load(d, largest + lane), exp2_of(x)), d, weights + lane);
      }
      for (std::int64_t i = 0; i < panel.rows; ++i) {
        const std::int64_t row = panel.first_query + i;
        const bool spoilt = std::isnan(panel.sum[i]);
        const bool none = keys[i] < 0;
        if (to.top_keys.data != nullptr) {
          to.top_keys.row_as<std::int64_t>(row)[n] =
              none || spoilt ? -1 : head.origin.key_start + keys[i];
        }
        if (to.top_weights.data != nullptr) {
          to.top_weights.row_as<float>(row)[n] = spoilt ? std::numeric_limits<float>::quiet_NaN()
                                                 : none ? 0.0f
                                                        : weights[i];
        }
      }
    }
  }

 private:
  static constexpr std::int64_t kMostBounded = 16;
  static constexpr std::int64_t kFew = 8;

  void raise_least(const float* scores, std::int64_t keys, std::int64_t group, float* least) const {
    const Floats d;
    const Vector none = hn::Set(d, -std::numeric_limits<float>::infinity());
    Vector largest[kMostBounded];
    std::fill_n(largest, k_, none);
    for (std::int64_t k = 0; k + group <= keys; k += group) {
      Vector x = none;
      for (std::int64_t i = 0; i < group; ++i) {
        // In this order, Max() ignores NaN, which hidden keys may have here.
        x = hn::Max(hn::Load(d, scores + (k + i) * kPanelLanes), x);
      }
      for (std::int64_t n = 0; n < k_; ++n) {
        const Vector before = largest[n];
        largest[n] = hn::Max(before, x);
        x = hn::Min(before, x);
      }
    }
    // Slightly lower, because a score must exceed the threshold and may equal the bound.
    const Vector bound = largest[k_ - 1];
    const Vector below =
        hn::Sub(bound, hn::MulAdd(hn::Abs(bound), hn::Set(d, 2.4e-7f), hn::Set(d, 1.2e-38f)));
    hn::Store(hn::Max(below, hn::Load(d, least)), d, least);
  }

  /// The elements of a list. Short ones are of one length, and stay in registers while keys are
  /// inserted.
  std::int64_t length() const { return k_ > 1 && k_ <= kFew ? kFew : k_; }

  struct Element {
    __m512 score;
    __m512i key;
  };
  static HWY_INLINE Element load(const float* list, const std::int32_t* keys, std::int64_t n) {
    return {_mm512_load_ps(list + n * kPanelLanes), _mm512_load_si512(keys + n * kPanelLanes)};
  }
  static HWY_INLINE void store(const Element& element, float* list, std::int32_t* keys,
                               std::int64_t n) {
    _mm512_store_ps(list + n * kPanelLanes, element.score);
    _mm512_store_si512(keys + n * kPanelLanes, element.key);
  }

  /// Inserts each row's marked scores after all scores that are at least as large. kCount is the
  /// length of the lists, or 0 for any.
  template <int kCount>
  HWY_NOINLINE void insert_all(const float* scores, std::int64_t first_key, __m512i low,
                               __m512i high, float* list, std::int32_t* keys) const {
    Element kept[kCount > 0 ? kCount : 1];
    if constexpr (kCount > 0) {
#pragma GCC unroll 8
      for (int n = 0; n < kCount; ++n) kept[n] = load(list, keys, n);
    }
    const __m512i one = _mm512_set1_epi32(1);
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 none = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
    const __m512i first = _mm512_set1_epi32(static_cast<std::int32_t>(first_key));
    __mmask16 in_low = _mm512_test_epi32_mask(low, low);
    __mmask16 in_high = _mm512_test_epi32_mask(high, high);
    do {
      // The lowest bit of each row; its number is the exponent of that power of two.
      const __m512i bits = _mm512_mask_mov_epi32(high, in_low, low);
      const __m512i rest = _mm512_and_si512(bits, _mm512_sub_epi32(bits, one));
      const __m512i power = _mm512_xor_si512(bits, rest);
      const __m512i exponent =
          _mm512_srli_epi32(_mm512_castps_si512(_mm512_cvtepu32_ps(power)), 23);
      const __m512i number = _mm512_sub_epi32(
          exponent,
          _mm512_mask_mov_epi32(_mm512_set1_epi32(127 - 32), in_low, _mm512_set1_epi32(127)));
      low = _mm512_mask_mov_epi32(low, in_low, rest);
      high = _mm512_mask_mov_epi32(rest, in_low, high);
      const __m512i at = _mm512_add_epi32(
          _mm512_slli_epi32(number, std::countr_zero(static_cast<unsigned>(kPanelLanes))), lanes);
      const __m512 x = _mm512_mask_i32gather_ps(none, in_low | in_high, at, scores, sizeof(float));
      const __m512i key = _mm512_add_epi32(first, number);
      // From the end: an element moves if `x` comes before it, and the one before it follows,
      // unless `x` comes before that, too.
      const auto moved = [&](const Element& here, const Element& previous, __mmask16 moves,
                             __mmask16 previous_moves) HWY_ATTR {
        const __m512i new_key = _mm512_mask_mov_epi32(key, previous_moves, previous.key);
        return Element{_mm512_mask_mov_ps(here.score, moves, _mm512_min_ps(x, previous.score)),
                       _mm512_mask_mov_epi32(here.key, moves, new_key)};
      };
      const auto moves = [&](const Element& element)
                             HWY_ATTR { return _mm512_cmp_ps_mask(x, element.score, _CMP_GT_OQ); };
      const auto moved_first = [&](const Element& here, __mmask16 here_moves) HWY_ATTR {
        return Element{_mm512_mask_mov_ps(here.score, here_moves, x),
                       _mm512_mask_mov_epi32(here.key, here_moves, key)};
      };
      if constexpr (kCount > 0) {
        __mmask16 here_moves = moves(kept[kCount - 1]);
#pragma GCC unroll 8
        for (int n = kCount - 1; n > 0; --n) {
          const __mmask16 previous_moves = moves(kept[n - 1]);
          kept[n] = moved(kept[n], kept[n - 1], here_moves, previous_moves);
          here_moves = previous_moves;
        }
        kept[0] = moved_first(kept[0], here_moves);
      } else {
        Element here = load(list, keys, k_ - 1);
        __mmask16 here_moves = moves(here);
        for (std::int64_t n = k_ - 1; n > 0; --n) {
          const Element previous = load(list, keys, n - 1);
          const __mmask16 previous_moves = moves(previous);
          store(moved(here, previous, here_moves, previous_moves), list, keys, n);
          here = previous;
          here_moves = previous_moves;
        }
        store(moved_first(here, here_moves), list, keys, 0);
      }
      in_low = _mm512_test_epi32_mask(low, low);
      in_high = _mm512_test_epi32_mask(high, high);
    } while ((in_low | in_high) != 0);
    if constexpr (kCount > 0) {
#pragma GCC unroll 8
      for (int n = 0; n < kCount; ++n) store(kept[n], list, keys, n);
    }
  }

  std::int64_t k_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
