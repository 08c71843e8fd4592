// SPDX-License-Identifier: Apache-2.0
//
// One block of keys and values, packed into tiles. Keys with a NaN or infinity in the value are
// called doubtful: with a weight of 0 they would still turn the context of rows that do not see
// them into NaN. Their values are packed as zeros and added afterwards to the rows that see them.

#if defined(FOVEA_KERNELS_TILE_KEY_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_KEY_BLOCK_INL_H_
#undef FOVEA_KERNELS_TILE_KEY_BLOCK_INL_H_
#else
#define FOVEA_KERNELS_TILE_KEY_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/simd/simd-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/tile/pack-inl.h"
#include "kernels/tile/score-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

template <class Arithmetic>
class KeyBlock {
 public:
  KeyBlock(const ForwardSetup& setup, const ForwardHead& head, ForwardScratch& scratch)
      : setup_(setup), head_(head), scratch_(scratch) {}

  /// Packs `count` keys, starting at key `block`, and their values into tiles.
  void pack(std::int64_t block, std::int64_t count, std::int64_t tiles) {
    block_ = block;
    Arithmetic::pack_keys(head_.key, block, count, setup_.head_dim, scratch_.keys);
    doubtful_ = 0;
    if (!Arithmetic::pack_values(head_.value, block, count, tiles * kTileRows, setup_.value_dim,
                                 scratch_.values, scratch_.value_tile_stride)) {
      set_doubtful_aside(count);
    }
  }

  /// Records the lanes that see each doubtful key: the lanes whose score for the key is not -inf.
  /// Call it before the weights overwrite the scores.
  void note_who_sees_doubtful(const Segment& segment) {
    if (doubtful_ == 0) return;
    const std::int64_t lane = segment.first_vector * kLanes;
    for (std::int32_t i = 0; i < doubtful_; ++i) {
      const std::int32_t key = scratch_.doubtful[i];
      if (key < segment.first_key || key >= segment.first_key + segment.keys) continue;
      const float* scores = scratch_.scores + key * kPanelLanes;
      float* visible = scratch_.doubtful_visible + i * kPanelLanes;
      for (std::int64_t at = lane; at < lane + segment.vectors * kLanes; ++at) {
        visible[at] = scores[at] == kMinusInfinity ? 0.0f : 1.0f;
      }
    }
  }

  /// Adds the values of doubtful keys to the rows that see them.
  void add_doubtful(const Panel& panel, const Segment& segment) {
    if (doubtful_ == 0) return;
    const std::int64_t lane = segment.first_vector * kLanes;
    for (std::int32_t i = 0; i < doubtful_; ++i) {
      const std::int32_t key = scratch_.doubtful[i];
      if (key < segment.first_key || key >= segment.first_key + segment.keys) continue;
      for (std::int64_t at = lane; at < lane + segment.vectors * kLanes; ++at) {
        if (scratch_.doubtful_visible[i * kPanelLanes + at] == 0.0f) continue;
        const float weight = Arithmetic::weight(scratch_.scores, key, at);
        for (std::int64_t c = 0; c < setup_.value_dim; ++c) {
          panel.context[c * kPanelLanes + at] += weight * value_at(key, c);
        }
      }
    }
  }

 private:
  float value_at(std::int64_t key, std::int64_t c) const {
    return number_at(head_.value, block_ + key, c);
  }

  /// Lists the keys of the block with non-finite values and sets their packed values to zero.
  void set_doubtful_aside(std::int64_t count) {
    for (std::int64_t k = 0; k < count; ++k) {
      if (row_is_finite(head_.value, block_ + k, setup_.value_dim)) continue;
      scratch_.doubtful[doubtful_++] = static_cast<std::int32_t>(k);
      for (std::int64_t c = 0; c < setup_.value_dim; c += kTileRows) {
        const std::int64_t width = std::min<std::int64_t>(kTileRows, setup_.value_dim - c);
        Arithmetic::clear_value(scratch_.values + c / kTileRows * scratch_.value_tile_stride, k,
                                width);
      }
    }
  }

  const ForwardSetup& setup_;
  const ForwardHead& head_;
  ForwardScratch& scratch_;
  std::int64_t block_ = 0;     // the first key
  std::int32_t doubtful_ = 0;  // the number of doubtful keys
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_KEY_BLOCK_INL_H_
