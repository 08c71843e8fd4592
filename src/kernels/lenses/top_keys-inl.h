// SPDX-License-Identifier: Apache-2.0
//
// The largest weights of each row (lenses-inl.h). Each row has a list of scores in descending
// order; a score is inserted if it exceeds the last one.
//
// The number of insertions determines the cost. With random scores, about k / j of the scores at
// key j enter the list, so the first block is the most expensive. For this block, a lower bound of
// the row's k-th largest score is therefore computed first: the k-th largest of the maxima of the
// block's tiles, which are scores themselves.

#if defined(FOVEA_KERNELS_LENSES_TOP_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_LENSES_TOP_KEYS_INL_H_
#undef FOVEA_KERNELS_LENSES_TOP_KEYS_INL_H_
#else
#define FOVEA_KERNELS_LENSES_TOP_KEYS_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "fovea/simd_math-inl.h"

#include "kernels/lenses/lenses.h"
#include "kernels/simd/find-inl.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

class TopKeyLens {
 public:
  TopKeyLens(std::int64_t k, const LensScratch& scratch)
      : k_(k),
        pad_(scratch.top_pad),
        stride_(scratch.top_stride),
        candidates_(scratch.top_candidates) {}

  void open(std::int64_t rows, PanelLenses& seen) const {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    std::fill_n(seen.top_scores, kPanelLanes * stride_, -kInfinity);
    for (std::int64_t lane = 0; lane < kPanelLanes; ++lane) {
      seen.top_scores[lane * stride_ + pad_ - 1] = kInfinity;
      // Lanes without a row accept no score.
      seen.top_least[lane] = lane < rows ? -kInfinity : kInfinity;
    }
    seen.top_begun = false;
  }

  /// Updates the lists with the scores of a block. `tile_maximum` [tiles][kPanelLanes] has the
  /// maxima of its tiles.
  void look_at_block(const Panel& panel, std::int64_t block, std::int64_t tiles,
                     std::int64_t segments, const ForwardScratch& scratch,
                     const float* tile_maximum, PanelLenses& seen) const {
    if (!seen.top_begun) {
      raise_least(panel, tiles, tile_maximum, seen.top_least);
      seen.top_begun = true;
    }
    // The positions of candidates are unpredictable, so candidates are first listed without
    // branches, and then processed.
    const std::int64_t count = list_candidates(segments, scratch, tile_maximum, seen.top_least);
    for (std::int64_t n = 0; n < count; ++n) {
      const std::int64_t tile = candidates_[n] >> kLaneBits;
      const std::int64_t lane = candidates_[n] & ((1 << kLaneBits) - 1);
      look_at_keys(scratch.scores + tile * kTileRows * kPanelLanes + lane, block + tile * kTileRows,
                   lane, seen);
    }
  }

  /// Writes the lists of the panel's rows.
  void write(const Panel& panel, PanelLenses& seen, const ForwardHead& head, const float* factor,
             float score_factor) const {
    const Floats d;
    const HeadLenses& to = *head.lenses;
    for (std::int64_t i = 0; i < panel.rows; ++i) {
      float* const scores = seen.top_scores + i * stride_ + pad_;
      const std::int32_t* const keys = seen.top_keys + i * stride_ + pad_;
      const std::int64_t row = panel.first_query + i;
      const bool spoilt = std::isnan(panel.sum[i]);
      if (to.top_keys.data != nullptr) {
        auto* const out = to.top_keys.row_as<std::int64_t>(row);
        for (std::int64_t n = 0; n < k_; ++n) {
          const bool none = spoilt || scores[n] == -std::numeric_limits<float>::infinity();
          out[n] = none ? -1 : head.origin.key_start + keys[n];
        }
      }
      if (to.top_weights.data == nullptr) continue;
      const Vector maximum = hn::Set(d, panel.maximum[i]);
      // The factor is 0 for a row without visible keys, and NaN for a NaN row.
      const Vector times = hn::Set(d, factor[i]);
      for (std::int64_t n = 0; n < stride_ - pad_; n += kLanes) {
        const Vector below =
            hn::Mul(hn::Set(d, score_factor), hn::Sub(hn::Load(d, scores + n), maximum));
        hn::Store(hn::Mul(times, fovea::HWY_NAMESPACE::exp2_of_nonpositive(d, below)), d,
                  scores + n);
      }
      std::copy_n(scores, k_, to.top_weights.row_as<float>(row));
    }
  }

 private:
  /// Raises `least` [lanes] to a lower bound of the k-th largest score in each row's first block.
  void raise_least(const Panel& panel, std::int64_t tiles, const float* tile_maximum,
                   float* least) const {
    if (tiles < k_) return;
    const Floats d;
    for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
      Vector largest[kMaxTopKeys];
      std::fill_n(largest, k_, hn::Set(d, std::numeric_limits<float>::lowest()));
      for (std::int64_t t = 0; t < tiles; ++t) {
        Vector maximum = hn::Load(d, tile_maximum + t * kPanelLanes + lane);
        for (std::int64_t n = 0; n < k_; ++n) {
          const Vector before = largest[n];
          largest[n] = hn::Max(before, maximum);
          maximum = hn::Min(before, maximum);
        }
      }
      const Vector bound = largest[k_ - 1];
      // The stored threshold is slightly lower, because a score must exceed it and may equal the
      // bound.
      const Vector below =
          hn::Sub(bound, hn::MulAdd(hn::Abs(bound), hn::Set(d, 2.4e-7f), hn::Set(d, 1.2e-38f)));
      hn::Store(hn::Max(below, hn::Load(d, least + lane)), d, least + lane);
    }
  }

  /// Fills candidates_ with `tile << kLaneBits | lane` for each tile and lane with a score above
  /// `least` [lanes], in key order for each lane. Returns the number of candidates.
  std::int64_t list_candidates(std::int64_t segments, const ForwardScratch& scratch,
                               const float* tile_maximum, const float* least) const {
    const Floats d;
    std::int64_t count = 0;
    for (std::int64_t s = 0; s < segments; ++s) {
      const Segment& segment = scratch.segments[s];
      const std::int64_t end = tiles_of(segment.first_key + segment.keys);
      for (std::int64_t tile = segment.first_key / kTileRows; tile < end; ++tile) {
        for (std::int64_t v = 0; v < segment.vectors; ++v) {
          const std::int64_t lane = (segment.first_vector + v) * kLanes;
          const Vector maximum = hn::Load(d, tile_maximum + tile * kPanelLanes + lane);
          const auto above = hn::Gt(maximum, hn::Load(d, least + lane));
          count += list_lanes(above, static_cast<std::int32_t>(tile << kLaneBits | lane),
                              candidates_ + count);
        }
      }
    }
    return count;
  }

  /// Updates the list of one row with the keys of a tile. `scores` points to the score of the first
  /// key, `key`. The qualifying scores are unpredictable, so all scores are compared before any
  /// branch.
  HWY_INLINE void look_at_keys(const float* scores, std::int64_t key, std::int64_t lane,
                               PanelLenses& seen) const {
    const float least = seen.top_least[lane];
    unsigned found = rows_that_are<Than::kGreater>(scores, least);
    float* const list = seen.top_scores + lane * stride_ + pad_;
    std::int32_t* const keys = seen.top_keys + lane * stride_ + pad_;
    if (stride_ - pad_ == kLanes) {
      insert_into_one_vector(scores, key, found, list, keys);
    } else {
      for (; found != 0; found &= found - 1) {
        const int i = std::countr_zero(found);
        insert(scores[i * kPanelLanes], static_cast<std::int32_t>(key + i), list, keys);
      }
    }
    seen.top_least[lane] = std::max(least, list[k_ - 1]);
  }

  /// Same as insert(), for the keys of a tile whose bits are set in `found`. The list stays in
  /// registers.
  static HWY_INLINE void insert_into_one_vector(const float* scores, std::int64_t key,
                                                unsigned found, float* list, std::int32_t* keys) {
    const Floats d;
    const Ints di;
    HWY_ALIGN std::int32_t before[kLanes];
    for (std::int32_t i = 0; i < kLanes; ++i) before[i] = std::max(i - 1, 0);
    const auto shift = hn::SetTableIndices(d, before);
    const auto shift_numbers = hn::SetTableIndices(di, before);
    const auto first = hn::FirstN(d, 1);
    const Vector infinity = hn::Set(d, std::numeric_limits<float>::infinity());
    Vector here = hn::Load(d, list);
    auto numbers = hn::Load(di, keys);
    do {
      const int i = std::countr_zero(found | 1u << (kTileRows - 1));
      const Vector x = hn::Set(d, scores[i * kPanelLanes]);
      const Vector previous = hn::IfThenElse(first, infinity, hn::TableLookupLanes(here, shift));
      const auto previous_numbers = hn::TableLookupLanes(numbers, shift_numbers);
      const auto moves = hn::RebindMask(di, hn::Gt(x, here));
      const auto previous_moves = hn::RebindMask(di, hn::Gt(x, previous));
      const auto number = hn::Set(di, static_cast<std::int32_t>(key + i));
      numbers =
          hn::IfThenElse(moves, hn::IfThenElse(previous_moves, previous_numbers, number), numbers);
      here = hn::Max(here, hn::Min(x, previous));
    } while ((found &= found - 1) != 0);
    hn::Store(here, d, list);
    hn::Store(numbers, di, keys);
  }

  /// Inserts a score after all scores that are at least as large, and shifts the later ones,
  /// working from the end. The element before the first score is infinity.
  HWY_INLINE void insert(float score, std::int32_t key, float* scores, std::int32_t* keys) const {
    const Floats d;
    const Ints di;
    const Vector x = hn::Set(d, score);
    for (std::int64_t n = stride_ - pad_ - kLanes; n >= 0; n -= kLanes) {
      const Vector here = hn::Load(d, scores + n);
      const Vector previous = hn::LoadU(d, scores + n - 1);
      const auto moves = hn::Gt(x, here);
      const auto previous_moves = hn::Gt(x, previous);
      const auto number = hn::Load(di, keys + n);
      const auto previous_number = hn::LoadU(di, keys + n - 1);
      const auto new_number =
          hn::IfThenElse(hn::RebindMask(di, previous_moves), previous_number, hn::Set(di, key));
      hn::Store(hn::IfThenElse(moves, hn::Min(x, previous), here), d, scores + n);
      hn::Store(hn::IfThenElse(hn::RebindMask(di, moves), new_number, number), di, keys + n);
    }
  }

  static constexpr int kLaneBits = 8;
  static_assert(kPanelLanes <= 1 << kLaneBits);

  std::int64_t k_, pad_, stride_;
  std::int32_t* candidates_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_LENSES_TOP_KEYS_INL_H_
