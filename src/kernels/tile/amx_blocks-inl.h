// SPDX-License-Identifier: Apache-2.0
//
// The products with keys and values by the tile unit. Keys are packed into tiles many blocks at a
// time, as much as stays in the L2 cache; then each panel of queries runs over all these blocks, so
// that its scores, weights and contexts stay in the L1 cache.
//
// Everything is computed transposed, with one query per lane, as in the other passes:
//
//     scores^T  [keys][queries]       = K Q^T     A: rows of K     B: Q, pairs of dimensions
//     context^T [value_dim][queries] += V^T P^T   A: columns of V  B: weights, pairs of keys
//
// Masks and biases are therefore the code of the other passes, sums and maxima of a row stay in one
// lane, and the softmax writes weights in the layout that the second product reads. A
// step computes 2 x 2 tiles of sums: two tiles of A (32 keys or dimensions) times two of B (the 32
// queries of a panel).

#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/simd/simd-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/simd/tile_unit-inl.h"
#include "kernels/tile/amx_numbers-inl.h"
#include "kernels/tile/amx_pack-inl.h"
#include "kernels/tile/amx_sums-inl.h"
#include "kernels/tile/lane_contexts-inl.h"
#include "kernels/tile/panel-inl.h"
#include "kernels/tile/score-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// The packed keys and values of as many blocks as are packed together; half of a 2 MiB L2 cache.
constexpr std::int64_t kPackedBytes = 1 << 20;

template <class Numbers>
class AmxBlocks : public LaneContexts<Numbers> {
 public:
  using Arithmetic = Numbers;
  static constexpr bool kMayRefuse = Numbers::kParts > 1;
  static constexpr bool kMayAdd = false;
  static constexpr bool kMayWriteProduct = false;
  static constexpr bool kPrefetches = false;

  AmxBlocks(const ForwardSetup& setup, const ForwardHead& head, ForwardScratch& scratch)
      : LaneContexts<Numbers>(setup, head, scratch), size_(setup) {
    const std::int64_t times = (head.kv_len + size_.most_together - 1) / size_.most_together;
    if (times > 1) keys_together_ = whole_units((head.kv_len + times - 1) / times, kBlock);
  }

  static ForwardScratchSizes scratch_sizes(const ForwardSetup& setup) {
    const Sizes size(setup);
    ForwardScratchSizes sizes = HWY_NAMESPACE::scratch_sizes<Numbers>(setup);
    const std::int64_t keys = std::min(size.most_together, whole_units(setup.most_keys, kBlock));
    sizes.query_steps = size.key_steps * kUnitRows * Numbers::kParts;
    sizes.value_dim = size.value_tiles * kUnitRows;
    sizes.weights = kBlock / 2 * kPanelLanes * Numbers::kParts;
    sizes.keys = keys / kUnitRows * size.key_steps * kTileFloats + kUnitFloats;  // never 0
    sizes.values = keys / kUnitDepth * size.value_tiles * kTileFloats;
    sizes.blocks = keys / kBlock;
    sizes.unfit = kMayRefuse ? sizes.blocks : 0;
    return sizes;
  }
  /// Returns whether all keys are packed at once.
  static bool packs_all(const ForwardSetup& setup) {
    return setup.most_keys <= Sizes(setup).most_together;
  }

  std::int64_t keys_together() const { return keys_together_; }

  /// Makes `block` the current block, and packs it unless it is packed.
  bool enter(std::int64_t block, std::int64_t count) {
    if (first_ < 0 || block < first_ || block >= first_ + keys_together_) {
      const std::int64_t first = block / keys_together_ * keys_together_;
      first_ = first;
      const std::int64_t keys = std::min(keys_together_, head_.kv_len - first);
      std::fill_n(scratch_.blocks, (keys + kBlock - 1) / kBlock, kUnpacked);
    }
    block_ = block - first_;
    std::uint8_t& note = scratch_.blocks[block_ / kBlock];
    const bool packs = note == kUnpacked;
    if (packs) note = pack(block, count);
    doubtful_.open(block);
    if (note == kNotFinite) doubtful_.find(count, [&](std::int64_t key) { clear_value(key); });
    return packs;
  }

  /// Raises the maximum for any `Finish`.
  template <int kVectors, Finish = Finish::kMaximum>
  HWY_INLINE void scores(const Panel& panel, std::int64_t key, std::int64_t lane, float* scores,
                         float* maximum) const {
    Pending pending{};
    NoWeights none;
    four_sums<Numbers, kVectors, true, 0>(score_sums(block_ + key, panel.queries + lane, scores),
                                          pending, none);
    store_sums<kVectors>(pending);
    raise_maximum(scores, kVectors * kLanes, maximum);
  }

  static constexpr std::int64_t value_fetches(std::int64_t, std::int64_t) { return 0; }
  /// Computes context = factor * context + weights times values. Does not call fetch().
  template <int kVectors, class Fetch>
  HWY_INLINE void add_values(Panel& panel, const Segment& segment, const Fetch&) {
    this->begin_context(panel);
    const std::int64_t lane = segment.first_vector * kLanes;
    rescale(panel, lane, kVectors);
    const float* const weights = scratch_.weights + segment.first_key / 2 * kPanelLanes + lane;
    NoWeights none;
    for (std::int64_t t = 0; t < size_.value_tiles; t += 2) {
      Pending pending{};
      four_sums<Numbers, kVectors, true, 0>(
          context_sums(block_ + segment.first_key, segment.keys, t, weights, panel.context + lane),
          pending, none);
      store_sums<kVectors>(pending);
    }
  }

  /// Returns the rows, one bit each, whose queries need other arithmetic.
  std::uint64_t unfit_queries(const Panel& panel) const {
    if constexpr (!kMayRefuse) return 0;
    return unfit_rows(head_.query, panel.first_query, panel.rows, setup_.head_dim);
  }
  /// Sets the loaded queries of these rows to zero.
  void clear_queries(const Panel& panel, std::uint64_t rows) const {
    for (; rows != 0; rows &= rows - 1) {
      const std::int64_t words = size_.key_steps * kUnitRows * Numbers::kParts;
      for (std::int64_t i = 0; i < words; ++i) {
        panel.queries[i * kPanelLanes + std::countr_zero(rows)] = 0.0f;
      }
    }
  }
  /// Returns the rows that see a key or value of the current block that needs other arithmetic.
  std::uint64_t rows_that_see_unfit(const Panel& panel) const {
    std::uint64_t rows = 0;
    if constexpr (kMayRefuse) {
      for (std::uint32_t keys = scratch_.unfit[block_ / kBlock]; keys != 0; keys &= keys - 1) {
        const std::int64_t key = first_ + block_ + std::countr_zero(keys);
        for (std::int64_t r = 0; r < panel.rows; ++r) {
          const ScorePosition place = head_.place(panel.first_query + r, key);
          const bool seen =
              key >= panel.key_begin[r] && key < panel.key_end[r] &&
              (panel.exact || setup_.options->mask.classify({place, 1, 1}) != Visibility::kNone);
          rows |= std::uint64_t{seen} << r;
        }
      }
    }
    return rows;
  }

  /// Returns whether the current block may be pushed: its values are finite and not huge.
  bool may_push() const {
    if constexpr (kMayRefuse) {
      if (scratch_.unfit[block_ / kBlock] != 0) return false;
    }
    return scratch_.blocks[block_ / kBlock] == kUsual;
  }

  /// Multiplies the contexts by scratch.factor and writes them. Uses no scratch memory, because the
  /// pipeline has already computed scores of the next panel.
  void write_context(const Panel& panel) const {
    if (head_.context.dtype == DType::kBFloat16) return write_rows<BFloat16>(panel);
    if (head_.context.dtype == DType::kFloat16) return write_rows<Float16>(panel);
    write_rows<float>(panel);
  }

 protected:
  using LaneContexts<Numbers>::setup_;
  using LaneContexts<Numbers>::head_;
  using LaneContexts<Numbers>::scratch_;
  using LaneContexts<Numbers>::doubtful_;

  static constexpr std::int64_t kBlock = Numbers::kBlockKeys;

  struct Sizes {
    explicit Sizes(const ForwardSetup& setup)
        : key_steps(row_tiles(setup.head_dim)), value_tiles(column_tiles(setup.value_dim)) {
      const std::int64_t key_bytes =
          (key_steps * kUnitDepth + value_tiles * kUnitRows) * 2 * Numbers::kParts;
      most_together =
          std::max<std::int64_t>(kPackedBytes / std::max<std::int64_t>(key_bytes, 64) / kBlock, 1) *
          kBlock;
    }
    std::int64_t key_steps;      // of 32 dimensions
    std::int64_t value_tiles;    // of 16 dimensions, an even number
    std::int64_t most_together;  // keys that are packed together
  };

  /// The scores of 32 keys, counted from the first packed one.
  Sums score_sums(std::int64_t key, const float* queries, float* to) const {
    return {.a = key_tile(key),
            .a_next = size_.key_steps * kTileFloats,
            .a_step = kTileFloats,
            .b = queries,
            .b_part = size_.key_steps * kUnitRows * kPanelLanes,
            .steps = size_.key_steps,
            .from = nullptr,
            .to = to};
  }
  /// The contexts of 32 dimensions, from value tile `t` on, over `keys` keys.
  Sums context_sums(std::int64_t key, std::int64_t keys, std::int64_t t, const float* weights,
                    float* context) const {
    float* const to = context + t * kUnitRows * kPanelLanes;
    return {.a = value_tile(key) + t * kTileFloats,
            .a_next = kTileFloats,
            .a_step = size_.value_tiles * kTileFloats,
            .b = weights,
            .b_part = kBlock / 2 * kPanelLanes,
            .steps = keys / kUnitDepth,
            .from = to,
            .to = to};
  }

  /// Multiplies contexts by scratch.factor.
  void rescale(const Panel& panel, std::int64_t lane, int vectors) const {
    const Floats d;
    if (!panel.begun) return;
    for (int v = 0; v < vectors; ++v, lane += kLanes) {
      const Vector factor = hn::Load(d, scratch_.factor + lane);
      if (hn::AllTrue(d, hn::Eq(factor, hn::Set(d, 1.0f)))) continue;
      const std::int64_t dim = setup_.value_dim;
      for (std::int64_t c = 0; c < dim; ++c) {
        float* const at = panel.context + c * kPanelLanes + lane;
        hn::Store(hn::Mul(factor, hn::Load(d, at)), d, at);
      }
    }
  }

  const Sizes size_;
  std::int64_t first_ = -1;  // the first key that is packed
  std::int64_t block_ = 0;   // the current block, counted from it

 private:
  static constexpr std::int64_t kTileFloats = kTileWords<Numbers>;
  /// The state of a block: not packed, finite values, values so large that a weight above 1
  /// might overflow, values that are not finite.
  static constexpr std::uint8_t kUnpacked = 0, kUsual = 1, kLarge = 2, kNotFinite = 3;
  static constexpr float kLargeValue = 0x1p80f;

  std::uint8_t pack(std::int64_t block, std::int64_t count) {
    Magnitudes key_sizes, value_sizes;
    pack_as_rows<Numbers>(head_.key, block, count, setup_.head_dim, key_tile(block_), key_sizes);
    if (setup_.value_dim > 0) {
      pack_as_columns<Numbers>(head_.value, block, count, setup_.value_dim, value_tile(block_),
                               value_sizes);
    }
    if constexpr (kMayRefuse) {
      const bool fit = Numbers::accepts(key_sizes) && Numbers::accepts(value_sizes);
      scratch_.unfit[block_ / kBlock] = fit ? 0 : clear_unfit(block, count);
      return kUsual;
    }
    if (!value_sizes.below(std::numeric_limits<float>::infinity())) return kNotFinite;
    return value_sizes.below(kLargeValue) ? kUsual : kLarge;
  }
  /// Sets keys and values of the current block that need other arithmetic to zero, and returns
  /// them.
  std::uint32_t clear_unfit(std::int64_t block, std::int64_t count) const {
    static_assert(!kMayRefuse || kBlock <= 32);
    std::uint64_t keys = unfit_rows(head_.key, block, count, setup_.head_dim);
    if (setup_.value_dim > 0) keys |= unfit_rows(head_.value, block, count, setup_.value_dim);
    for (std::uint64_t left = keys; left != 0; left &= left - 1) {
      const std::int64_t key = std::countr_zero(left);
      clear_row<Numbers>(scratch_.keys, block_ + key, setup_.head_dim);
      clear_value(key);
    }
    return static_cast<std::uint32_t>(keys);
  }
  static std::uint64_t unfit_rows(const InputRows& rows, std::int64_t first, std::int64_t count,
                                  std::int64_t dim) {
    Magnitudes all;
    Numbers::add_rows(rows, first, count, dim, all);
    if (Numbers::accepts(all)) return 0;
    std::uint64_t unfit = 0;
    for (std::int64_t r = 0; r < count; ++r) {
      Magnitudes sizes;
      Numbers::add_rows(rows, first + r, 1, dim, sizes);
      unfit |= std::uint64_t{!Numbers::accepts(sizes)} << r;
    }
    return unfit;
  }
  /// Returns the tiles of the 16 keys, or the values of the 32 keys, from `key` on.
  float* key_tile(std::int64_t key) const {
    return scratch_.keys + key / kUnitRows * size_.key_steps * kTileFloats;
  }
  float* value_tile(std::int64_t key) const {
    return scratch_.values + key / kUnitDepth * size_.value_tiles * kTileFloats;
  }
  void clear_value(std::int64_t key) const {
    clear_column<Numbers>(scratch_.values, block_ + key, setup_.value_dim);
  }

  /// write_context() for a type that 32 dimensions at a time are turned and converted to.
  template <class T>
  void write_rows(const Panel& panel) const {
    for (std::int64_t lane = 0; lane < panel.rows; lane += kUnitRows) {
      const __m512 factor = _mm512_load_ps(scratch_.factor + lane);
      const std::int64_t rows = std::min(kUnitRows, panel.rows - lane);
      T* to = head_.context.template row_as<T>(panel.first_query + lane);
      for (std::int64_t c = 0; c < setup_.value_dim; c += 32, to += 32) {
        const std::int64_t dims = std::min<std::int64_t>(setup_.value_dim - c, 32);
        const std::uint32_t there = dims < 32 ? (1u << dims) - 1u : ~0u;
        __m512i low[16], high[16];
        const float* const from = panel.context + c * kPanelLanes + lane;
        const auto number = [&](int i) HWY_ATTR {
          return _mm512_castps_si512(_mm512_mul_ps(factor, _mm512_load_ps(from + i * kPanelLanes)));
        };
        constexpr bool kFloats = sizeof(T) == sizeof(float);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
          if constexpr (kFloats) {
            low[i] = number(i);
            high[i] = number(i + 16);
          } else if constexpr (std::is_same_v<T, Float16>) {
            low[i] = half_pairs(number(2 * i), number(2 * i + 1));
          } else {
            low[i] = bf16_pairs(number(2 * i), number(2 * i + 1));
          }
        }
        turn_words(low);
        if constexpr (kFloats) turn_words(high);
        for (std::int64_t r = 0; r < rows; ++r) {
          T* const row = to + r * head_.context.stride;
          if constexpr (kFloats) {
            _mm512_mask_storeu_epi32(row, static_cast<__mmask16>(there), low[r]);
            if (dims > 16) {
              _mm512_mask_storeu_epi32(row + 16, static_cast<__mmask16>(there >> 16), high[r]);
            }
          } else {
            _mm512_mask_storeu_epi16(row, there, low[r]);
          }
        }
      }
    }
  }

  std::int64_t keys_together_ = size_.most_together;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
