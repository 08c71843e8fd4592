// SPDX-License-Identifier: Apache-2.0
//
// The products with a block of keys and values that is packed into tiles, for panels of many
// queries: every panel of an item reads the packed block. Contexts have one query per lane.
// key_rows-inl.h is the counterpart for few queries.

#if defined(FOVEA_KERNELS_TILE_KEY_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_KEY_BLOCK_INL_H_
#undef FOVEA_KERNELS_TILE_KEY_BLOCK_INL_H_
#else
#define FOVEA_KERNELS_TILE_KEY_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/simd/simd-inl.h"
#include "kernels/tile/lane_contexts-inl.h"
#include "kernels/tile/panel-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"
#include "kernels/tile/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

template <class ArithmeticOfTiles>
class KeyBlock : public LaneContexts<ArithmeticOfTiles> {
 public:
  using Arithmetic = ArithmeticOfTiles;
  static constexpr bool kHasPipeline = false;
  static constexpr bool kMayRefuse = false;
  static constexpr bool kMayWriteProduct = false;
  static constexpr bool kPrefetches = false;
  static constexpr bool kMayAdd = true;  // whether there is scores_plus()
  /// Returns the exponent that weights are relative to: weights are 2^(factor * score - reference).
  static double reference(float maximum, float factor) {
    return static_cast<double>(maximum) * static_cast<double>(factor);
  }
  using LaneContexts<Arithmetic>::LaneContexts;

  static ForwardScratchSizes scratch_sizes(const ForwardSetup& setup) {
    return HWY_NAMESPACE::scratch_sizes<Arithmetic>(setup);
  }

  std::int64_t keys_together() const { return setup_.block_keys; }

  /// Packs `count` keys, starting at key `block`, and their values into tiles, unless they are.
  /// Returns whether they were not.
  bool enter(std::int64_t block, std::int64_t count) {
    if (block == block_) return false;
    block_ = block;
    const std::int64_t kept = tiles_of(count) * kTileRows;
    Arithmetic::pack_keys(head_.key, block, count, setup_.head_dim, scratch_.keys);
    doubtful_.open(block);
    if (Arithmetic::pack_values(head_.value, block, count, kept, setup_.value_dim, scratch_.values,
                                scratch_.value_tile_stride)) {
      return true;
    }
    doubtful_.find(count, [&](std::int64_t key) {
      for (std::int64_t c = 0; c < setup_.value_dim; c += kTileRows) {
        const std::int64_t width = std::min<std::int64_t>(kTileRows, setup_.value_dim - c);
        Arithmetic::clear_value(scratch_.values + c / kTileRows * scratch_.value_tile_stride, key,
                                width);
      }
    });
    return true;
  }

  /// Computes the scores of a tile of keys, starting at key `key` of the block, for `kVectors`
  /// vectors of queries, starting at lane `lane`. `scores` and `maximum` point to the first vector.
  template <int kVectors, Finish kFinish = Finish::kMaximum>
  HWY_INLINE void scores(const Panel& panel, std::int64_t key, std::int64_t lane, float* scores,
                         float* maximum) const {
    const std::int64_t dim = steps<Arithmetic>(setup_.head_dim);
    tile<Arithmetic, kTileRows, kVectors, kFinish>(scratch_.keys + key * dim, panel.queries + lane,
                                                   dim, scores, maximum);
  }

  /// As scores(), plus an addend. Calls between() as tile() does.
  template <int kVectors, class Between>
  HWY_INLINE void scores_plus(const Addend& addend, std::int64_t key, const float* queries,
                              float* scores, float* maximum, Between& between) const {
    const std::int64_t dim = steps<Arithmetic>(setup_.head_dim);
    tile<Arithmetic, kTileRows, kVectors, Finish::kAddMaximum, Between&>(
        scratch_.keys + key * dim, queries, dim, scores, maximum, addend, between);
  }

  /// Returns the number of fetch() calls of add_values() for one segment.
  std::int64_t value_fetches(std::int64_t, std::int64_t) const {
    return tiles_of(setup_.value_dim);
  }
  /// Computes context = factor * context + weights times values, for the keys and the kVectors
  /// vectors of a segment. Calls fetch() before each tile.
  template <int kVectors, class Fetch>
  HWY_INLINE void add_values(const Panel& panel, const Segment& segment, const Fetch& fetch) {
    const std::int64_t lane = segment.first_vector * kLanes;
    const std::int64_t first_step = steps<Arithmetic>(segment.first_key);
    const float* weights = scratch_.weights + first_step * kPanelLanes + lane;
    for (std::int64_t c = 0; c < setup_.value_dim; c += kTileRows) {
      const std::int64_t width = std::min<std::int64_t>(kTileRows, setup_.value_dim - c);
      const float* values = scratch_.values + c / kTileRows * scratch_.value_tile_stride;
      fetch();
      tile_of<Arithmetic, kVectors, Finish::kAccumulate>(
          width, values + first_step * width, weights, steps<Arithmetic>(segment.keys),
          panel.context + c * kPanelLanes + lane, scratch_.factor + lane);
    }
  }

 private:
  using LaneContexts<Arithmetic>::setup_;
  using LaneContexts<Arithmetic>::head_;
  using LaneContexts<Arithmetic>::scratch_;
  using LaneContexts<Arithmetic>::doubtful_;
  std::int64_t block_ = -1;  // the packed block
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_KEY_BLOCK_INL_H_
