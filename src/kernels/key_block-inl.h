// SPDX-License-Identifier: Apache-2.0
//
// One block of keys and values, packed into tiles. Keys with a nan or inf in the value are
// doubtful: a weight of 0 would not keep it from rows that do not see the key. They are packed as
// zeros, and added afterwards to the rows that do.

#if defined(FOVEA_KERNELS_KEY_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_KEY_BLOCK_INL_H_
#undef FOVEA_KERNELS_KEY_BLOCK_INL_H_
#else
#define FOVEA_KERNELS_KEY_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/forward.h"
#include "kernels/forward_scratch.h"
#include "kernels/pack-inl.h"
#include "kernels/score-inl.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

class KeyBlock {
 public:
  KeyBlock(const ForwardSetup& setup, const ForwardHead& head, ForwardScratch& scratch)
      : setup_(setup), head_(head), scratch_(scratch) {}

  /// Packs the keys from `block` on and their values into tiles.
  void pack(std::int64_t block, std::int64_t count, std::int64_t tiles) {
    block_ = block;
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t key = block + t * kTileRows;
      pack_key_tile(head_.key.data + key * head_.key.stride, head_.key.stride,
                    std::min<std::int64_t>(kTileRows, head_.kv_len - key), setup_.head_dim,
                    scratch_.keys + t * kTileRows * setup_.head_dim);
    }
    doubtful_ = 0;
    const float* values = head_.value.data + block * head_.value.stride;
    if (!pack_values(values, head_.value.stride, count, tiles * kTileRows, setup_.value_dim,
                     scratch_.values, scratch_.value_tile_stride)) {
      set_doubtful_aside(values, count);
    }
  }

  /// Which lanes see a doubtful key, while the scores still tell: those not hidden by -inf.
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
      const float* value = head_.value.data + (block_ + key) * head_.value.stride;
      for (std::int64_t at = lane; at < lane + segment.vectors * kLanes; ++at) {
        if (scratch_.doubtful_visible[i * kPanelLanes + at] == 0.0f) continue;
        const float weight = scratch_.scores[key * kPanelLanes + at];
        for (std::int64_t c = 0; c < setup_.value_dim; ++c) {
          panel.context[c * kPanelLanes + at] += weight * value[c];
        }
      }
    }
  }

 private:
  /// Lists the keys of the block whose values are not all finite and packs them as zeros.
  void set_doubtful_aside(const float* values, std::int64_t count) {
    for (std::int64_t k = 0; k < count; ++k) {
      const float* value = values + k * head_.value.stride;
      const bool finite =
          std::all_of(value, value + setup_.value_dim, [](float x) { return std::isfinite(x); });
      if (finite) continue;
      scratch_.doubtful[doubtful_++] = static_cast<std::int32_t>(k);
      for (std::int64_t c = 0; c < setup_.value_dim; c += kTileRows) {
        const std::int64_t width = std::min<std::int64_t>(kTileRows, setup_.value_dim - c);
        float* row = scratch_.values + c / kTileRows * scratch_.value_tile_stride + k * width;
        std::fill(row, row + width, 0.0f);
      }
    }
  }

  const ForwardSetup& setup_;
  const ForwardHead& head_;
  ForwardScratch& scratch_;
  std::int64_t block_ = 0;     // the first key
  std::int32_t doubtful_ = 0;  // how many of them
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_KEY_BLOCK_INL_H_
