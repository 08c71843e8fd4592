// SPDX-License-Identifier: Apache-2.0
//
// The products with keys and values by the tile unit. Keys are packed into tiles many blocks at a
// time, as much as stays in the L2 cache; then each panel of queries runs over all these blocks, so
// that its scores, weights and contexts stay in the L1 cache.
//
// Everything is computed transposed, with one query per lane, as in the other passes:
//     scores^T  [keys][queries]      = K Q^T      A: rows of keys      B: queries, pairs of
//     dimensions context^T [value_dim][queries] += V^T P^T   A: columns of values B: weights, pairs
//     of keys
// so that masks, biases, lenses and the softmax are shared, sums and maxima of rows need no
// reduction, and the weights are operands as the softmax writes them. 2 x 2 sums: two tiles of A,
// 32 keys or dimensions, by two of B, the 32 queries of a panel.
//
// push() is for blocks without stages between scores and softmax, and with masks that are ranges of
// keys, if any. The blocks of all panels form one pipeline: while the vector unit computes the
// weights of a block, the tile unit computes the scores of the next block and the context of the
// previous one, and after each product or two follow the weights of two keys. Sums of scores start
// from -inf for hidden keys. There is no running maximum: weights are relative to the maximum of a
// panel's first block, which may be far off, as float32 and bfloat16 have 8 bits of exponent.
// Blocks in which the weights of a row exceed 2^20 in sum, or are NaN, are left to the other
// functions, which are not pipelined.

#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "kernels/simd/simd-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/simd/tile_unit-inl.h"
#include "kernels/tile/amx_numbers-inl.h"
#include "kernels/tile/amx_pack-inl.h"
#include "kernels/tile/amx_sums-inl.h"
#include "kernels/tile/dropout-inl.h"
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
class AmxKeys : public LaneContexts<Numbers> {
 public:
  using Arithmetic = Numbers;
  static constexpr bool kHasPipeline = true;
  static constexpr bool kMayRefuse = Numbers::kParts > 1;

  AmxKeys(const ForwardSetup& setup, const ForwardHead& head, ForwardScratch& scratch)
      : LaneContexts<Numbers>(setup, head, scratch), size_(setup) {
    const std::int64_t times = (head.kv_len + size_.most_together - 1) / size_.most_together;
    if (times > 1) keys_together_ = whole_units((head.kv_len + times - 1) / times, kBlock);
    // One step is 32 products of 2 x 2 sums.
    const std::int64_t steps = kBlock / 32 * (size_.key_steps + size_.value_tiles / 2);
    rows_per_step_ = kBlock / 2 / steps;
  }

  static ForwardScratchSizes scratch_sizes(const ForwardSetup& setup) {
    const Sizes size(setup);
    ForwardScratchSizes sizes = HWY_NAMESPACE::scratch_sizes<Numbers>(setup);
    const std::int64_t keys = std::min(size.most_together, whole_units(setup.most_keys, kBlock));
    // If all keys are packed at once, a panel is finished before the fourth one after it begins.
    if (setup.most_keys <= size.most_together) sizes.panels_at_once = kPartsInFlight;
    sizes.query_steps = size.key_steps * kUnitRows * Numbers::kParts;
    sizes.value_dim = size.value_tiles * kUnitRows;
    sizes.weights = kBlock / 2 * kPanelLanes * Numbers::kParts;
    sizes.keys = keys / kUnitRows * size.key_steps * kTileFloats + kUnitFloats;  // never 0
    sizes.values = keys / kUnitDepth * size.value_tiles * kTileFloats;
    sizes.blocks = keys / kBlock;
    sizes.unfit = kMayRefuse ? sizes.blocks : 0;
    return sizes;
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

  template <int kVectors>
  HWY_INLINE void scores(std::int64_t key, const float* queries, float* scores,
                         float* maximum) const {
    Pending pending{};
    NoWeights none;
    four_sums<Numbers, kVectors, true, 0>(score_sums(block_ + key, queries, scores), pending, none);
    store_sums<kVectors>(pending);
    raise_maximum(scores, kVectors * kLanes, maximum);
  }

  /// Computes context = factor * context + weights times values.
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

  static double reference(float maximum, float factor) {
    const float rounded = maximum * factor;
    if (std::abs(rounded) <= kMostReference) return static_cast<double>(rounded);
    return static_cast<double>(maximum) * static_cast<double>(factor);
  }

  /// Raises the running maxima of rows without a visible key so far, and of those with scores far
  /// above theirs, to the maxima of a block. Rescales sums, and sets scratch.factor to what
  /// contexts need.
  void raise(const Panel& panel, const float* block_maximum, float factor) const {
    const Floats d;
    const Vector scale = hn::Set(d, factor);
    for (std::int64_t lane = 0; lane < kPanelLanes; lane += kLanes) {
      const Vector before = hn::Load(d, panel.maximum + lane);
      const Vector here = hn::Load(d, block_maximum + lane);
      const auto far = hn::Gt(exponent(scale, here, before), hn::Set(d, kMostExponent));
      const auto first = hn::Eq(before, hn::Set(d, kLowest));
      const auto raised = hn::Or(far, first);
      const Vector after = hn::IfThenElse(raised, here, before);
      const Vector shrink =
          hn::IfThenElse(raised, exp2_of(difference(scale, before, after)), hn::Set(d, 1.0f));
      hn::Store(after, d, panel.maximum + lane);
      hn::Store(shrink, d, scratch_.factor + lane);
      hn::Store(hn::Mul(shrink, hn::Load(d, panel.sum + lane)), d, panel.sum + lane);
      hn::Store(hn::Mul(shrink, hn::Load(d, panel.lse_sum + lane)), d, panel.lse_sum + lane);
      hn::Store(hn::Zero(d), d, scratch_.block_lse_sum + lane);
    }
  }

  /// Computes the weights of a segment and their sums, with the same bits as the pipeline.
  template <int kVectors>
  HWY_NOINLINE void compute_weights(const Panel& panel, std::int64_t block, const Segment& segment,
                                    float factor, std::optional<DropoutLanes>& dropout) const {
    const Floats d;
    const Vector scale = hn::Set(d, factor);
    const std::int64_t end = segment.first_key + segment.keys;
    for (std::int64_t k = segment.first_key; k < end; k += 2) {
      const std::int64_t first = segment.first_vector * kLanes;
      if (dropout && k % kTileRows == 0) {
        dropout->tile(panel.first_query + first, block + k, kVectors * kLanes, scratch_.kept);
      }
      for (int v = 0; v < kVectors; ++v) {
        const std::int64_t lane = first + v * kLanes;
        const float* const scores = scratch_.scores + k * kPanelLanes + lane;
        const Vector maximum = hn::Load(d, panel.maximum + lane);
        const Vector x = exponent(scale, hn::Load(d, scores), maximum);
        const Vector y = exponent(scale, hn::Load(d, scores + kPanelLanes), maximum);
        const auto add = [&](float* sum, Vector a, Vector b) HWY_ATTR {
          hn::Store(hn::Add(hn::Add(hn::Load(d, sum + lane), a), b), d, sum + lane);
        };
        const Vector exact_x = Numbers::exact_weight(x), exact_y = Numbers::exact_weight(y);
        add(scratch_.block_lse_sum, exact_x, exact_y);
        float* const weights = scratch_.weights + lane;
        if (dropout) {
          add(scratch_.block_sum, exact_x, exact_y);
          const float* const kept = scratch_.kept + k % kTileRows * kPanelLanes + v * kLanes;
          Numbers::store_weights(hn::Mul(exact_x, hn::Load(d, kept)),
                                 hn::Mul(exact_y, hn::Load(d, kept + kPanelLanes)), weights, k);
        } else {
          const Vector a = Numbers::weight(x), b = Numbers::weight(y);
          add(scratch_.block_sum, a, b);
          Numbers::store_rounded(a, b, weights + k / 2 * kPanelLanes);
        }
      }
    }
  }
  void add_block_sums(const Panel& panel) const {
    const Floats d;
    for (std::int64_t lane = 0; lane < kPanelLanes; lane += kLanes) {
      const auto add = [&](float* sum, const float* more) HWY_ATTR {
        hn::Store(hn::Add(hn::Load(d, sum + lane), hn::Load(d, more + lane)), d, sum + lane);
      };
      add(panel.sum, scratch_.block_sum);
      add(panel.lse_sum, scratch_.block_lse_sum);
    }
  }

  /// A part of a block of the pipeline: `keys` keys, a multiple of 32, from key `first_key` of the
  /// block on.
  struct Part {
    Panel* panel = nullptr;  // null: none
    std::int64_t panel_number = 0;
    std::int64_t block = 0;
    std::int64_t first_key = 0;
    std::int64_t keys = 0;
    bool masked[2] = {};      // whether the first, the second 32 keys of the block are
    bool last = false;        // the panel can be closed afterwards
    bool raises = false;      // the running maximum: set by push()
    std::int64_t packed = 0;  // the first key, counted from the first packed one: set by push()
  };

  /// Adds a part of a block that enter() has made the current one, and processes earlier parts. For
  /// parts that need other arithmetic, calls pass.attend_block(). Closes panels by
  /// pass.close_panel(). The softmax multiplies scores by `factor`.
  template <class Pass>
  void push(Pass& pass, float factor) {
    next_->packed = block_ + next_->first_key;
    next_->raises = next_->panel != current_->panel;
    push_again(pass, factor);
  }
  /// Returns the part that push() takes.
  Part& next() { return *next_; }
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

  /// Finishes all parts.
  template <class Pass>
  void flush(Pass& pass, float factor) {
    if (current_->panel == nullptr) return;
    if (current_->raises && !raise(*current_, factor)) return abandon(pass, false);
    if (!advance(nullptr, factor)) return abandon(pass, true);
    store_sums<2>(pending_);
    pending_ = {{nowhere(), nowhere(), nowhere(), nowhere()}};
    NoWeights none;
    block_context<0>(*current_, scratch_.weights, pending_, none);
    store_sums<2>(pending_);
    const Part last = *current_;
    close_earlier(pass);
    if (last.last) pass.close_panel(last.panel_number);
  }

  /// Multiplies the contexts by scratch.factor and writes them.
  void write_context(const Panel& panel) const {
    if (head_.context.dtype == DType::kBFloat16) return write_rows<BFloat16>(panel);
    if (head_.context.dtype == DType::kFloat32) return write_rows<float>(panel);
    LaneContexts<Numbers>::write_context(panel);
  }

 private:
  using LaneContexts<Numbers>::setup_;
  using LaneContexts<Numbers>::head_;
  using LaneContexts<Numbers>::scratch_;
  using LaneContexts<Numbers>::doubtful_;

  static constexpr std::int64_t kBlock = Numbers::kBlockKeys;
  static constexpr std::int64_t kTileFloats = kTileWords<Numbers>;
  /// What is known of a block: not packed, finite values, values so large that a weight above 1
  /// might overflow, values that are not finite.
  static constexpr std::uint8_t kUnpacked = 0, kUsual = 1, kLarge = 2, kNotFinite = 3;
  static constexpr std::int64_t kPartsInFlight = 4;
  static constexpr float kMostWeights = 0x1p20f;  // the sum of a block's weights in push()
  static constexpr float kMostExponent = 20.0f;   // of a weight before a maximum is raised
  static constexpr float kMostReference = 0x1p20f;
  static constexpr float kLargeValue = 0x1p80f;

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

  float* nowhere() const { return scratch_.first_scores + kBlock * kPanelLanes; }

  template <class Pass>
  void push_again(Pass& pass, float factor) {
    for (std::int64_t half = 0; half < kBlock / 32; ++half) {
      if (next_->masked[half]) fill_first_scores(*next_, half * 32);
    }
    if (current_->panel == nullptr) {
      pending_ = {{nowhere(), nowhere(), nowhere(), nowhere()}};
      scores_apart(*next_, scratch_.scores);
      std::swap(current_, next_);
      return;
    }
    const bool raised = !current_->raises || raise(*current_, factor);
    if (!raised || !advance(next_, factor)) {
      abandon(pass, raised);
      next_->raises = true;
      return push_again(pass, factor);  // attend_block() has used the memory of its scores
    }
    const bool closes = before_->last;  // its sums were stored while the next ones were computed
    const std::int64_t closed = before_->panel_number;
    Part* const oldest = before_;
    before_ = previous_;
    previous_ = current_;
    current_ = next_;
    next_ = oldest;
    std::swap(scratch_.scores, scratch_.other_scores);
    std::swap(scratch_.weights, scratch_.other_weights);
    if (closes) pass.close_panel(closed);
  }

  /// Leaves the current part to the other functions and empties the pipeline. `added` tells whether
  /// the values of the previous part have been added.
  template <class Pass>
  void abandon(Pass& pass, bool added) {
    if (!added && previous_->panel != nullptr) {
      NoWeights none;
      block_context<0>(*previous_, scratch_.other_weights, pending_, none);
    }
    store_sums<2>(pending_);
    const Part part = *current_;
    close_earlier(pass);
    pass.attend_block(part.panel_number, part.block);
    if (part.last) pass.close_panel(part.panel_number);
  }
  /// Empties the pipeline, whose sums are stored, and closes panels before the current one.
  template <class Pass>
  void close_earlier(Pass& pass) {
    const Part done[2] = {*before_, *previous_};
    *before_ = *previous_ = *current_ = {};
    for (const Part& part : done) {
      if (part.last) pass.close_panel(part.panel_number);
    }
  }

  /// Initial values for the scores of 32 masked keys: 0, or -inf where the key is hidden.
  void fill_first_scores(const Part& part, std::int64_t key) const {
    const Floats d;
    const Ints di;
    const auto within = [&](std::int64_t k) {
      return static_cast<std::int32_t>(std::clamp<std::int64_t>(k - part.block - key, 0, 32));
    };
    HWY_ALIGN std::int32_t begin[kPanelLanes], end[kPanelLanes];
    for (std::int64_t i = 0; i < kPanelLanes; ++i) {
      begin[i] = within(part.panel->key_begin[i]);
      end[i] = within(part.panel->key_end[i]);
    }
    for (std::int64_t lane = 0; lane < kPanelLanes; lane += kLanes) {
      const auto from = hn::Load(di, begin + lane), to = hn::Load(di, end + lane);
      float* at = scratch_.first_scores + key * kPanelLanes + lane;
      for (std::int32_t k = 0; k < 32; ++k, at += kPanelLanes) {
        const auto here = hn::Set(di, k);
        const auto outside = hn::Or(hn::Gt(from, here), hn::Not(hn::Gt(to, here)));
        hn::Store(hn::IfThenElseZero(hn::RebindMask(d, outside), hn::Set(d, kMinusInfinity)), d,
                  at);
      }
    }
  }

  /// Computes the weights of the current part, meanwhile the scores of `next`, unless it is null,
  /// and adds the values of the previous part, if there is one. Returns false if a row's weights
  /// are too large or NaN.
  bool advance(const Part* next, float factor) {
    if constexpr (Numbers::kSumsRoundedWeights) {
      if (head_.lse.data != nullptr) return advance_with<true>(next, factor);
    }
    return advance_with<false>(next, factor);
  }
  template <bool kLse>
  bool advance_with(const Part* next, float factor) {
    BlockWeights<Numbers, kLse> softmax(factor, current_->panel->maximum);
    softmax.begin(scratch_.scores, scratch_.weights, current_->keys);
    if (next == nullptr || previous_->panel == nullptr) {
      advance_apart(next, softmax);
    } else if (rows_per_step_ >= 8) {
      advance_together<8>(*next, softmax);
    } else if (rows_per_step_ >= 4) {
      advance_together<4>(*next, softmax);
    } else if (rows_per_step_ >= 2) {
      advance_together<2>(*next, softmax);
    } else {
      advance_together<1>(*next, softmax);
    }
    if (!softmax.within(kMostWeights)) return false;
    softmax.add_to(*current_->panel);
    return true;
  }
  template <int kRows, class Weights>
  HWY_NOINLINE void advance_together(const Part& next, Weights& weights) {
    Pending pending = pending_;  // copies, which stay in registers
    Weights softmax = weights;
    block_scores<kRows>(next, scratch_.other_scores, pending, softmax);
    block_context<kRows>(*previous_, scratch_.other_weights, pending, softmax);
    while (softmax.left() > 0) softmax.two_keys();
    weights = softmax;
    pending_ = pending;
  }
  template <class Weights>
  HWY_NOINLINE void advance_apart(const Part* next, Weights& weights) {
    if (next != nullptr) scores_apart(*next, scratch_.other_scores);
    if (previous_->panel != nullptr) {
      NoWeights none;
      block_context<0>(*previous_, scratch_.other_weights, pending_, none);
    }
    Weights softmax = weights;
    while (softmax.left() > 0) softmax.two_keys();
    weights = softmax;
  }
  /// Computes scores and stores their last sums.
  HWY_NOINLINE void scores_apart(const Part& part, float* to) {
    NoWeights none;
    block_scores<0>(part, to, pending_, none);
    store_sums<2>(pending_);
    pending_ = {{nowhere(), nowhere(), nowhere(), nowhere()}};
  }
  template <int kRows, class Between>
  HWY_INLINE void block_scores(const Part& part, float* to, Pending& pending,
                               Between& between) const {
    for (std::int64_t k = 0; k < part.keys; k += 32) {
      Sums sums = score_sums(part.packed + k, part.panel->queries, to + k * kPanelLanes);
      const std::int64_t key = part.first_key + k;
      if (part.masked[key / 32]) sums.from = scratch_.first_scores + key * kPanelLanes;
      // Queries of many dimensions would fill too much of the L1 cache.
      four_sums<Numbers, 2, false, kRows, kRows <= 2>(sums, pending, between);
    }
  }
  template <int kRows, class Between>
  HWY_INLINE void block_context(const Part& part, const float* weights, Pending& pending,
                                Between& between) const {
    for (std::int64_t t = 0; t < size_.value_tiles; t += 2) {
      Sums sums = context_sums(part.packed, part.keys, t, weights, part.panel->context);
      if (!part.panel->begun) sums.from = nullptr;
      four_sums<Numbers, 2, false, kRows>(sums, pending, between);
    }
    part.panel->begun = true;
  }

  /// raise() for the current part, with contexts. Returns false if a score is so large that
  /// BlockWeights would lose digits.
  bool raise(const Part& part, float factor) const {
    const Floats d;
    const Panel& panel = *part.panel;
    // Four maxima, because one after the other would take the latency of each.
    Vector even0 = hn::Set(d, kLowest), even1 = even0, odd0 = even0, odd1 = even0;
    const float* at = scratch_.scores;
    for (std::int64_t k = 0; k < part.keys; k += 2, at += 2 * kPanelLanes) {
      // In this order, Max() ignores NaN, which hidden keys may have here.
      even0 = hn::Max(hn::Load(d, at), even0);
      even1 = hn::Max(hn::Load(d, at + kLanes), even1);
      odd0 = hn::Max(hn::Load(d, at + kPanelLanes), odd0);
      odd1 = hn::Max(hn::Load(d, at + kPanelLanes + kLanes), odd1);
    }
    hn::Store(hn::Max(even0, odd0), d, scratch_.block_maximum);
    hn::Store(hn::Max(even1, odd1), d, scratch_.block_maximum + kLanes);
    const Vector sums =
        hn::Add(hn::Load(d, panel.sum), hn::Load(d, panel.sum + kLanes));  // not negative
    const bool fresh = hn::AllTrue(d, hn::Eq(sums, hn::Zero(d)));
    raise(panel, scratch_.block_maximum, factor);
    if (!fresh) rescale(panel, 0, kPanelVectors);
    for (std::int64_t lane = 0; lane < kPanelLanes; lane += kLanes) {
      const Vector maximum = hn::Load(d, panel.maximum + lane);
      const Vector reference = hn::Abs(hn::Mul(hn::Set(d, factor), maximum));
      // Rows without a visible key so far: their next score exceeds kMostWeights, unless all scores
      // are tiny.
      const auto none = hn::Eq(maximum, hn::Set(d, kLowest));
      const auto fits = hn::Le(reference, hn::Set(d, kMostReference));
      if (!hn::AllTrue(d, hn::Xor(fits, none))) return false;
    }
    return true;
  }

  /// Returns the reference of maximum `a` minus that of `b`, as exponent() has them.
  static HWY_INLINE Vector difference(Vector factor, Vector a, Vector b) {
    const Floats d;
    const Vector of_a = hn::Mul(factor, a), of_b = hn::Mul(factor, b);
    const auto fits = hn::Le(hn::Max(hn::Abs(of_a), hn::Abs(of_b)), hn::Set(d, kMostReference));
    return hn::IfThenElse(fits, hn::Sub(of_a, of_b), hn::Mul(factor, hn::Sub(a, b)));
  }

  /// Returns factor * (score - maximum). One rounding, of factor * maximum, is common to all scores
  /// of a row, unless that product is so large that the rounding would exceed the range of
  /// exponents.
  static HWY_INLINE Vector exponent(Vector factor, Vector score, Vector maximum) {
    const Floats d;
    const Vector reference = hn::Mul(factor, maximum);
    const auto fits = hn::Le(hn::Abs(reference), hn::Set(d, kMostReference));
    return hn::IfThenElse(fits, hn::MulAdd(score, factor, hn::Neg(reference)),
                          hn::Mul(factor, hn::Sub(score, maximum)));
  }

  const Sizes size_;
  std::int64_t keys_together_ = size_.most_together;
  std::int64_t rows_per_step_;
  std::int64_t first_ = -1;  // the first key that is packed
  std::int64_t block_ = 0;   // the current block, counted from it
  // The pipeline. `current_` has scores, `previous_` weights, and the last sums of `before_` are
  // still pending.
  Part parts_[kPartsInFlight];
  Part* before_ = &parts_[0];
  Part* previous_ = &parts_[1];
  Part* current_ = &parts_[2];
  Part* next_ = &parts_[3];
  Pending pending_{};
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
