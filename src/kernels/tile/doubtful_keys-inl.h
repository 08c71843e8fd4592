// SPDX-License-Identifier: Apache-2.0
//
// Keys of a block with a NaN or infinity in the value. With a weight of 0 they would still turn the
// context of rows that do not see them into NaN. The block holds zeros in place of their values,
// which are added afterwards to the rows that see them.

#if defined(FOVEA_KERNELS_TILE_DOUBTFUL_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_DOUBTFUL_KEYS_INL_H_
#undef FOVEA_KERNELS_TILE_DOUBTFUL_KEYS_INL_H_
#else
#define FOVEA_KERNELS_TILE_DOUBTFUL_KEYS_INL_H_
#endif

#include <cstdint>

#include "kernels/simd/simd-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/tile/score-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

class DoubtfulKeys {
 public:
  DoubtfulKeys(const ForwardSetup& setup, const ForwardHead& head, ForwardScratch& scratch)
      : setup_(setup), head_(head), scratch_(scratch) {}

  /// Starts a block without doubtful keys.
  void open(std::int64_t block) {
    block_ = block;
    count_ = 0;
  }

  bool any() const { return count_ > 0; }

  /// Lists the doubtful ones among the first `count` keys of the block, and calls clear(key) for
  /// each, which sets its value to zero.
  template <class Clear>
  void find(std::int64_t count, const Clear& clear) {
    for (std::int64_t k = 0; k < count; ++k) {
      if (row_is_finite(head_.value, block_ + k, setup_.value_dim)) continue;
      scratch_.doubtful[count_++] = static_cast<std::int32_t>(k);
      clear(k);
    }
  }

  /// Records the lanes that see each doubtful key: the lanes whose score for the key is not -inf.
  /// Call it before the weights overwrite the scores.
  void note_who_sees(const Segment& segment) {
    for_each(segment, [&](std::int64_t key, float* visible, std::int64_t lane) {
      const float score = scratch_.scores[key * kPanelLanes + lane];
      visible[lane] = score == kMinusInfinity ? 0.0f : 1.0f;
    });
  }

  /// Calls add(key, lane, c, value) for each number of the value of each doubtful key, for the
  /// lanes that see the key.
  template <class Add>
  void add(const Segment& segment, const Add& add) {
    for_each(segment, [&](std::int64_t key, const float* visible, std::int64_t lane) {
      if (visible[lane] == 0.0f) return;
      for (std::int64_t c = 0; c < setup_.value_dim; ++c) {
        add(key, lane, c, number_at(head_.value, block_ + key, c));
      }
    });
  }

 private:
  template <class Visit>
  void for_each(const Segment& segment, const Visit& visit) {
    const std::int64_t lane = segment.first_vector * kLanes;
    for (std::int32_t i = 0; i < count_; ++i) {
      const std::int32_t key = scratch_.doubtful[i];
      if (key < segment.first_key || key >= segment.first_key + segment.keys) continue;
      for (std::int64_t at = lane; at < lane + segment.vectors * kLanes; ++at) {
        visit(key, scratch_.doubtful_visible + i * kPanelLanes, at);
      }
    }
  }

  const ForwardSetup& setup_;
  const ForwardHead& head_;
  ForwardScratch& scratch_;
  std::int64_t block_ = 0;  // the first key
  std::int32_t count_ = 0;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_DOUBTFUL_KEYS_INL_H_
