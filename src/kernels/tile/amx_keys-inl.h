// SPDX-License-Identifier: Apache-2.0
//
// The softmax of the tile unit, and the pipeline of its products (amx_blocks-inl.h).
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
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "kernels/simd/simd-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/simd/tile_unit-inl.h"
#include "kernels/tile/amx_blocks-inl.h"
#include "kernels/tile/amx_sums-inl.h"
#include "kernels/tile/dropout-inl.h"
#include "kernels/tile/score-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

template <class Numbers>
class AmxKeys : public AmxBlocks<Numbers> {
 public:
  static constexpr bool kHasPipeline = true;

  AmxKeys(const ForwardSetup& setup, const ForwardHead& head, ForwardScratch& scratch)
      : AmxBlocks<Numbers>(setup, head, scratch) {
    // One step is 32 products of 2 x 2 sums.
    const std::int64_t steps = kBlock / 32 * (size_.key_steps + size_.value_tiles / 2);
    rows_per_step_ = kBlock / 2 / steps;
  }

  static ForwardScratchSizes scratch_sizes(const ForwardSetup& setup) {
    ForwardScratchSizes sizes = AmxBlocks<Numbers>::scratch_sizes(setup);
    if (AmxBlocks<Numbers>::packs_all(setup)) sizes.panels_at_once = kPartsInFlight;
    return sizes;
  }
  /// Returns the most panels that are begun and not closed at a time. If all keys are packed at
  /// once, a panel is finished before the fourth one after it begins.
  static std::int64_t most_open_panels(const ForwardSetup& setup) {
    return AmxBlocks<Numbers>::packs_all(setup) ? std::min(setup.most_panels, kPartsInFlight)
                                                : setup.most_panels;
  }

  static double reference(float maximum, float factor) {
    const float rounded = maximum * factor;
    if (std::abs(rounded) <= kMaxReference) return static_cast<double>(rounded);
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
      const auto far = hn::Gt(exponent_of(scale, here, before), hn::Set(d, kMaxExponent));
      const auto first = hn::Eq(before, hn::Set(d, kLowest));
      const auto raised = hn::Or(far, first);
      const Vector after = hn::IfThenElse(raised, here, before);
      const Vector shrink =
          hn::IfThenElse(raised, exp2_of(difference_of(scale, before, after)), hn::Set(d, 1.0f));
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
        const Vector x = exponent_of(scale, hn::Load(d, scores), maximum);
        const Vector y = exponent_of(scale, hn::Load(d, scores + kPanelLanes), maximum);
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
  /// Finishes all parts.
  template <class Pass>
  void flush(Pass& pass, float factor) {
    if (current_->panel == nullptr) return;
    if (current_->raises && !raise(pass, *current_, factor)) return abandon(pass, false);
    if (!advance(pass, nullptr, factor)) return abandon(pass, true);
    store_sums<2>(pending_);
    pending_ = {{nowhere(), nowhere(), nowhere(), nowhere()}};
    NoWeights none;
    block_context<0>(*current_, scratch_.weights, pending_, none);
    store_sums<2>(pending_);
    const Part last = *current_;
    close_earlier(pass);
    if (last.last) pass.close_panel(last.panel_number);
  }

 private:
  using AmxBlocks<Numbers>::head_;
  using AmxBlocks<Numbers>::scratch_;
  using AmxBlocks<Numbers>::size_;
  using AmxBlocks<Numbers>::first_;
  using AmxBlocks<Numbers>::block_;
  using AmxBlocks<Numbers>::kBlock;
  using AmxBlocks<Numbers>::score_sums;
  using AmxBlocks<Numbers>::context_sums;
  using AmxBlocks<Numbers>::rescale;

  static constexpr std::int64_t kPartsInFlight = 4;
  static constexpr float kMaxWeights = 0x1p20f;  // the sum of a block's weights in push()
  static constexpr float kMaxExponent = 20.0f;   // of a weight before a maximum is raised

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
    const bool raised = !current_->raises || raise(pass, *current_, factor);
    if (!raised || !advance(pass, next_, factor)) {
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
  template <class Pass>
  bool advance(Pass& pass, const Part* next, float factor) {
    if constexpr (!Pass::ItsLenses::kNone) {
      auto& lenses = pass.lenses();
      using Any = typename Pass::ItsLenses::template Watch<true>;
      using Usual = typename Pass::ItsLenses::template Watch<false>;
      const auto place = lenses.begin_part(*current_);
      const bool right = lenses.needs_any(*current_)
                             ? advance_by<BlockWeights<Numbers, true, Any>>(next, factor, place)
                             : advance_by<BlockWeights<Numbers, true, Usual>>(next, factor, place);
      if (!right) return false;
      lenses.end_part(*current_);
      return true;
    }
    if (Numbers::kSumsRoundedWeights && head_.lse.data != nullptr) {
      return advance_by<BlockWeights<Numbers, Numbers::kSumsRoundedWeights>>(next, factor, {});
    }
    return advance_by<BlockWeights<Numbers, false>>(next, factor, {});
  }
  template <class Weights>
  bool advance_by(const Part* next, float factor, const typename Weights::Place& place) {
    if (next == nullptr || previous_->panel == nullptr) {
      return advance_apart<Weights>(next, factor, place);
    }
    const std::int64_t rows = Weights::kRare ? 2 : rows_per_step_;  // one function is enough
    if (rows >= 8) return advance_together<8, Weights>(*next, factor, place);
    if (rows >= 4) return advance_together<4, Weights>(*next, factor, place);
    if (rows >= 2) return advance_together<2, Weights>(*next, factor, place);
    return advance_together<1, Weights>(*next, factor, place);
  }
  template <int kRows, class Weights>
  HWY_NOINLINE bool advance_together(const Part& next, float factor,
                                     const typename Weights::Place& place) {
    Weights softmax = begin<Weights>(factor, place);
    if constexpr (Weights::kWatches) {
      run_products<kRows>(next, softmax);
    } else {
      run_products_on_copy<kRows>(next, softmax);
    }
    return finish(softmax);
  }
  template <int kRows, class Weights>
  HWY_INLINE void run_products(const Part& next, Weights& softmax) {
    Pending pending = pending_;  // a copy, which stays in registers
    block_scores<kRows>(next, scratch_.other_scores, pending, softmax);
    block_context<kRows>(*previous_, scratch_.other_weights, pending, softmax);
    while (softmax.left() > 0) softmax.two_keys();
    pending_ = pending;
  }
  /// Copies the few sums of a softmax without lenses, for which compilers then find a better order
  /// of instructions: 7 % at 128 dimensions with lse. With lenses, copies cost 20 %.
  template <int kRows, class Weights>
  HWY_NOINLINE void run_products_on_copy(const Part& next, Weights& softmax) {
    Weights copy = softmax;
    run_products<kRows>(next, copy);
    softmax = copy;
  }
  template <class Weights>
  HWY_NOINLINE bool advance_apart(const Part* next, float factor,
                                  const typename Weights::Place& place) {
    if (next != nullptr) scores_apart(*next, scratch_.other_scores);
    if (previous_->panel != nullptr) {
      NoWeights none;
      block_context<0>(*previous_, scratch_.other_weights, pending_, none);
    }
    Weights softmax = begin<Weights>(factor, place);
    while (softmax.left() > 0) softmax.two_keys();
    return finish(softmax);
  }
  template <class Weights>
  HWY_INLINE Weights begin(float factor, const typename Weights::Place& place) const {
    return Weights(factor, current_->panel->maximum, scratch_.scores, scratch_.weights,
                   current_->keys, place);
  }
  template <class Weights>
  HWY_INLINE bool finish(const Weights& softmax) const {
    if (!softmax.within(kMaxWeights)) return false;
    softmax.add_to(*current_->panel);
    return true;
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
    if (size_.value_tiles == 0) {  // no sums follow that would store the pending scores
      store_sums<2>(pending);
      pending = {{nowhere(), nowhere(), nowhere(), nowhere()}};
    }
    for (std::int64_t t = 0; t < size_.value_tiles; t += 2) {
      Sums sums = context_sums(part.packed, part.keys, t, weights, part.panel->context);
      if (!part.panel->begun) sums.from = nullptr;
      four_sums<Numbers, 2, false, kRows>(sums, pending, between);
    }
    part.panel->begun = true;
  }

  /// raise() for the current part, with contexts. Returns false if a score is so large that
  /// BlockWeights would lose digits.
  template <class Pass>
  bool raise(Pass& pass, const Part& part, float factor) const {
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
    pass.lenses().rescale(part.panel_number, panel);
    for (std::int64_t lane = 0; lane < kPanelLanes; lane += kLanes) {
      const Vector maximum = hn::Load(d, panel.maximum + lane);
      const Vector reference = hn::Abs(hn::Mul(hn::Set(d, factor), maximum));
      // Rows without a visible key so far: their next score exceeds kMaxWeights, unless all scores
      // are tiny.
      const auto none = hn::Eq(maximum, hn::Set(d, kLowest));
      const auto fits = hn::Le(reference, hn::Set(d, kMaxReference));
      if (!hn::AllTrue(d, hn::Xor(fits, none))) return false;
    }
    return true;
  }

  std::int64_t rows_per_step_;
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
