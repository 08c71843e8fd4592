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
#include "kernels/simd/storage-inl.h"
#include "kernels/tile/doubtful_keys-inl.h"
#include "kernels/tile/pack-inl.h"
#include "kernels/tile/panel-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"
#include "kernels/tile/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

template <class ArithmeticOfTiles>
class KeyBlock {
 public:
  using Arithmetic = ArithmeticOfTiles;

  KeyBlock(const ForwardSetup& setup, const ForwardHead& head, ForwardScratch& scratch)
      : setup_(setup), head_(head), scratch_(scratch), doubtful_(setup, head, scratch) {}

  static ForwardScratchSizes scratch_sizes(const ForwardSetup& setup) {
    return HWY_NAMESPACE::scratch_sizes<Arithmetic>(setup);
  }

  /// Packs `count` keys, starting at key `block`, and their values into tiles.
  void open(std::int64_t block, std::int64_t count) {
    const std::int64_t kept = (count + kTileRows - 1) / kTileRows * kTileRows;
    Arithmetic::pack_keys(head_.key, block, count, setup_.head_dim, scratch_.keys);
    doubtful_.open(block);
    if (Arithmetic::pack_values(head_.value, block, count, kept, setup_.value_dim, scratch_.values,
                                scratch_.value_tile_stride)) {
      return;
    }
    doubtful_.find(count, [&](std::int64_t key) {
      for (std::int64_t c = 0; c < setup_.value_dim; c += kTileRows) {
        const std::int64_t width = std::min<std::int64_t>(kTileRows, setup_.value_dim - c);
        Arithmetic::clear_value(scratch_.values + c / kTileRows * scratch_.value_tile_stride, key,
                                width);
      }
    });
  }

  /// Computes the scores of a tile of keys, starting at key `key` of the block, for `kVectors`
  /// vectors of queries. `queries`, `scores` and `maximum` point to the first vector.
  template <int kVectors>
  HWY_INLINE void scores(std::int64_t key, const float* queries, float* scores,
                         float* maximum) const {
    const std::int64_t dim = steps<Arithmetic>(setup_.head_dim);
    tile<Arithmetic, kTileRows, kVectors, Finish::kMaximum>(scratch_.keys + key * dim, queries, dim,
                                                            scores, maximum);
  }
  void note_who_sees_doubtful(const Segment& segment) { doubtful_.note_who_sees(segment); }

  // ---- contexts: [value_dim][kPanelLanes]
  // ---------------------------------------------------------

  void clear_context(const Panel& panel) const {
    const Floats d;
    for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
      for (std::int64_t c = 0; c < setup_.value_dim; ++c) {
        hn::Store(hn::Zero(d), d, panel.context + c * kPanelLanes + lane);
      }
    }
  }

  /// Computes context = factor * context + weights times values, for the keys and the kVectors
  /// vectors of a segment. Calls fetch() now and then.
  template <int kVectors, class Fetch>
  HWY_INLINE void add_values(const Panel& panel, const Segment& segment, const Fetch& fetch) {
    const std::int64_t lane = segment.first_vector * kLanes;
    const std::int64_t first_step = steps<Arithmetic>(segment.first_key);
    const float* weights = scratch_.scores + first_step * kPanelLanes + lane;
    for (std::int64_t c = 0; c < setup_.value_dim; c += kTileRows) {
      const std::int64_t width = std::min<std::int64_t>(kTileRows, setup_.value_dim - c);
      const float* values = scratch_.values + c / kTileRows * scratch_.value_tile_stride;
      fetch();
      tile_of<Arithmetic, kVectors, Finish::kAccumulate>(
          width, values + first_step * width, weights, steps<Arithmetic>(segment.keys),
          panel.context + c * kPanelLanes + lane, scratch_.factor + lane);
    }
  }
  void add_doubtful(const Panel& panel, const Segment& segment) {
    doubtful_.add(segment, [&](std::int64_t key, std::int64_t lane, std::int64_t c, float value) {
      panel.context[c * kPanelLanes + lane] +=
          Arithmetic::weight(scratch_.scores, key, lane) * value;
    });
  }

  /// Multiplies the contexts by scratch.factor and writes them.
  void write_context(const Panel& panel) const {
    const Floats d;
    for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
      const Vector factor = hn::Load(d, scratch_.factor + lane);
      for (std::int64_t c = 0; c < setup_.value_dim; ++c) {
        float* at = panel.context + c * kPanelLanes + lane;
        hn::Store(hn::Mul(factor, hn::Load(d, at)), d, at);
      }
    }
    if (head_.context.dtype == DType::kFloat32) {
      transpose(Numbers<float>{panel.context}, kPanelLanes, setup_.value_dim, panel.rows,
                head_.context.row_as<float>(panel.first_query), head_.context.stride);
      return;
    }
    // Transpose through the score buffer, which is no longer needed, as many columns at a time as
    // fit.
    const std::int64_t columns = std::min(setup_.value_dim, setup_.block_keys);
    for (std::int64_t c = 0; c < setup_.value_dim; c += columns) {
      const std::int64_t count = std::min(columns, setup_.value_dim - c);
      transpose(Numbers<float>{panel.context + c * kPanelLanes}, kPanelLanes, count, panel.rows,
                scratch_.scores, columns);
      with_element_type(head_.context.dtype, [&](auto* type) {
        using T = std::remove_cvref_t<decltype(*type)>;
        for (std::int64_t r = 0; r < panel.rows; ++r) {
          write_numbers(scratch_.scores + r * columns, count,
                        head_.context.row_as<T>(panel.first_query + r) + c);
        }
      });
    }
  }

 private:
  const ForwardSetup& setup_;
  const ForwardHead& head_;
  ForwardScratch& scratch_;
  DoubtfulKeys doubtful_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_KEY_BLOCK_INL_H_
