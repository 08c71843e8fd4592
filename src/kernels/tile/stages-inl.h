// SPDX-License-Identifier: Apache-2.0
//
// The stages between the first product and the softmax, for one work item: selects the stages and
// prepares the inputs of each for a tile. The stages themselves are in score-inl.h. A bias alone
// may be added by the product instead, while the scores are in registers: find_addend().

#if defined(FOVEA_KERNELS_TILE_STAGES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_STAGES_INL_H_
#undef FOVEA_KERNELS_TILE_STAGES_INL_H_
#else
#define FOVEA_KERNELS_TILE_STAGES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "kernels/simd/simd-inl.h"
#include "kernels/tile/bias-inl.h"
#include "kernels/tile/position_bias.h"
#include "kernels/tile/score-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/segments-inl.h"
#include "kernels/tile/setup.h"
#include "kernels/tile/tile-inl.h"
#include "problem/query_factor.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

constexpr float kLog2E = std::numbers::log2e_v<float>;

class ScoreStages {
 public:
  /// If `queries_are_scaled`, query_factor() is applied to the queries, otherwise to the scores.
  ScoreStages(const ForwardSetup& setup, const ForwardHead& head, ForwardScratch& scratch,
              bool queries_are_scaled)
      : setup_(setup),
        head_(head),
        score_(setup.options->score),
        mask_(setup.options->mask),
        scratch_(scratch),
        bias_(score_.bias, head, scratch),
        scores_are_scaled_(queries_are_scaled) {}

  float query_factor() const { return fovea::query_factor(score_, setup_.scale); }
  /// Returns the factor that the softmax multiplies scores by: the absolute value of
  /// query_factor(), or 1 if query_factor() is applied earlier. The result is never 0, because the
  /// scores of hidden keys are -inf and 0 * -inf is NaN. For finite scores, the smallest normal
  /// number is practically equivalent to 0.
  float score_factor() const {
    if (scores_are_scaled_ || any()) return 1.0f;
    return std::max(std::abs(query_factor()), std::numeric_limits<float>::min());
  }

  /// Prepares the position biases for the item's queries [q_begin, q_begin + queries) and keys
  /// [keys_begin, keys_end).
  void begin(std::int64_t q_begin, std::int64_t queries, std::int64_t keys_begin,
             std::int64_t keys_end) {
    if (!has_position_bias()) return;
    first_distance_ = q_begin + head_.origin.offset - (keys_end + kTileRows);
    const std::int64_t last = q_begin + queries + head_.origin.offset - keys_begin;
    const std::int64_t count = last - first_distance_ + setup_.block_keys;
    fill_position_bias(score_, head_.origin.head, setup_.q_heads, first_distance_,
                       {scratch_.position_bias, static_cast<std::size_t>(count)});
    untested_positions_ = count;
  }

  /// Finds the segments of a block (segments-inl.h), without the tiles that trim-inl.h removes.
  /// Returns their number.
  std::int64_t find_segments(const Panel& panel, std::int64_t block, std::int64_t tiles) {
    ranged_ = &panel;
    if (!panel.exact) {
      const std::int64_t end = std::min(block + tiles * kTileRows, head_.kv_len);
      const Visibility visibility =
          head_.heads > 1
              ? Visibility::kSome
              : mask_.classify({head_.place(panel.first_query, block), panel.rows, end - block});
      if (visibility == Visibility::kNone) return 0;
      // Within a block, ranges may be exact even if those of whole rows are not.
      Panel& part = *scratch_.panel_of_block;
      part = panel;
      part.key_begin = scratch_.block_key_begin;
      part.key_end = scratch_.block_key_end;
      find_ranges(visibility == Visibility::kAll ? Mask() : mask_, head_, block, end, part);
      ranged_ = &part;
    }
    const std::int64_t found = HWY_NAMESPACE::find_segments(*ranged_, block, tiles, scratch_);
    return score_.bias.defined() ? bias_.trim(panel, block, scratch_.segments, found) : found;
  }
  /// Returns the ranges that find_segments() last used, one per vector of the panel.
  const VectorRange* ranges() const { return ranged_->ranges; }

  /// Returns whether any stage is active. If none is active, run() may be skipped.
  bool any() const {
    return score_.softcap > 0 || score_.custom.tile != nullptr || score_.bias.defined() ||
           has_position_bias();
  }
  /// Returns whether a stage is nonlinear (softcap or custom function), so that run() can compute
  /// its derivative.
  bool has_derivative() const { return score_.softcap > 0 || score_.custom.tile != nullptr; }

  /// Finds a bias that the product can add to the scores, instead of run(), with the same result.
  /// The tile is the segment's, and its first key is block + key. Returns false if there are other
  /// stages, or if numbers of the bias are so large that a sum could overflow. If the result is
  /// true, the caller must load the rows of `ahead` before the next call.
  HWY_NOINLINE bool find_addend(const Panel& panel, std::int64_t block, const Segment& segment,
                                std::int64_t key, Addend& addend, RowsAhead& ahead) {
    if (!positions_are_moderate_ || !bias_.are_moderate() || has_derivative() ||
        has_position_bias() == score_.bias.defined()) {
      return false;
    }
    const std::int64_t lane = segment.first_vector * kLanes;
    if (has_position_bias()) {
      if (untested_positions_ > 0) {
        const float* const last = scratch_.position_bias + untested_positions_ - kLanes;
        positions_are_moderate_ =
            are_moderate(scratch_.position_bias, untested_positions_ / kLanes * kLanes) &&
            are_moderate(last, kLanes);
        untested_positions_ = 0;
      }
      addend = {position_biases(panel, block + key, lane), -1, 1.0f, std::abs(query_factor())};
      return positions_are_moderate_;
    }
    addend = {bias_of(panel, block, segment, key), kPanelLanes, kLog2E, std::abs(query_factor())};
    if (!bias_.are_moderate()) return false;
    const std::int64_t begin = block + segment.first_key;
    bias_.find_rows_ahead(panel, block + key, lane, segment.vectors * kLanes, begin,
                          begin + segment.keys, ahead);
    return true;
  }
  /// Calls product(between), where `between` loads the rows of `ahead`. The product must call it as
  /// tile() does.
  template <class Product>
  HWY_INLINE void with_rows_ahead(const RowsAhead& ahead, const Product& product) {
    if (ahead.parts > 0) {
      bias_.load_rows_ahead(ahead, product);
    } else {
      NothingBetween between;
      product(between);
    }
  }

  /// Applies all stages in order to `keys` keys, at most kStageKeys: whole tiles of a segment. The
  /// first key is block + key, and the rows are the segment's kVectors vectors.
  ///
  /// `derivative`, if not null, receives the derivatives of the scores with respect to scale *
  /// product, both without the factor log2(e). It is a [keys][kPanelLanes] buffer, from the
  /// segment's first lane on, and requires has_derivative().
  ///
  /// `maximum`, if not null, has one number per lane, and is raised to the lane's largest score.
  template <int kVectors>
  void run(const Panel& panel, std::int64_t block, const Segment& segment, std::int64_t key,
           std::int64_t keys, float* derivative = nullptr, float* maximum = nullptr) {
    constexpr std::int64_t lanes = kVectors * kLanes;
    const std::int64_t lane = segment.first_vector * kLanes;
    float* scores = scratch_.scores + key * kPanelLanes + lane;
    const bool custom = score_.custom.tile != nullptr;
    // A softcap that is the last stage finds the maximum. Another pass would take 1.5 % of a call.
    const bool raises = maximum != nullptr && score_.softcap > 0 && !custom &&
                        !has_position_bias() && !score_.bias.defined();
    const float cap = static_cast<float>(score_.softcap) * (custom ? 1.0f : kLog2E);
    if (!scores_are_scaled_) scale_tiles(scores, keys, lanes, std::abs(query_factor()));
    if (score_.softcap > 0) {
      softcap_tiles<kVectors>(scores, keys, cap,
                              raises ? maximum : scratch_.ignored_maximum + lane);
    }
    if (derivative != nullptr || custom) {
      const ScoreTile tile{.scores = scores,
                           .stride = kPanelLanes,
                           .keys = keys,
                           .lanes = lanes,
                           .first = head_.place(panel.first_query + lane, block + key),
                           .factor = kLog2E};
      if (derivative != nullptr) find_derivative(tile, cap, derivative);
      if (custom) score_.custom.tile(score_.custom.state.get(), tile);
    }
    if (has_position_bias()) {
      add_position_bias(scores, keys, lanes, position_biases(panel, block + key, lane));
    }
    for (std::int64_t k = 0; k < keys && score_.bias.defined(); k += kTileRows) {
      add_bias_tile(scores + k * kPanelLanes, lanes, bias_of(panel, block, segment, key + k),
                    kLog2E);
      bias_.load_ahead(panel, block + key + k, lane, lanes,
                       block + segment.first_key + segment.keys);
    }
    if (maximum == nullptr || raises) return;
    for (std::int64_t k = 0; k < keys; k += kTileRows) {
      raise_maximum(scores + k * kPanelLanes, lanes, maximum);
    }
  }

  /// Prepares the visible keys of a segment's rows for mask_tile().
  void prepare_mask(const Panel& panel, std::int64_t block, const Segment& segment) {
    if (!ranged_->exact) return fill_visible(panel, block, segment);
    const auto within = [&](std::int64_t key) {
      return static_cast<std::int32_t>(std::clamp<std::int64_t>(key - block, 0, setup_.block_keys));
    };
    const std::int64_t lane = segment.first_vector * kLanes;
    for (std::int64_t i = lane; i < lane + segment.vectors * kLanes; ++i) {
      scratch_.key_begin[i] = within(ranged_->key_begin[i]);
      scratch_.key_end[i] = within(ranged_->key_end[i]);
    }
  }

  template <int kVectors>
  HWY_NOINLINE void mask_tile(std::int64_t key, std::int64_t lane) {
    constexpr std::int64_t lanes = kVectors * kLanes;
    float* scores = scratch_.scores + key * kPanelLanes + lane;
    if (ranged_->exact) {
      mask_tile_by_range(scores, lanes, static_cast<std::int32_t>(key), scratch_.key_begin + lane,
                         scratch_.key_end + lane);
    } else {
      mask_tile_by_rows(scores, lanes, scratch_.visible + lane * setup_.block_keys + key,
                        setup_.block_keys, scratch_.mask_rows, scratch_.mask_tile);
    }
  }

 private:
  /// Computes the derivatives from the scores after the softcap.
  void find_derivative(const ScoreTile& scores, float cap, float* derivative) {
    for (std::int64_t k = 0; k < scores.keys; ++k) {
      const float* from = scores.scores + k * kPanelLanes;
      float* to = derivative + k * kPanelLanes;
      if (score_.custom.tile == nullptr) {
        std::fill_n(to, scores.lanes, 1.0f);
      } else {
        std::copy_n(from, scores.lanes, to);
      }
    }
    if (score_.custom.tile != nullptr) {
      ScoreTile tile = scores;
      tile.scores = derivative;
      tile.factor = 1.0f;
      score_.custom.tile_derivative(score_.custom.state.get(), tile);
    }
    if (score_.softcap > 0) {
      softcap_derivative_tiles(scores.scores, scores.keys, scores.lanes, cap, derivative);
    }
  }

  bool has_position_bias() const { return score_.alibi.has_value() || score_.relative.has_value(); }

  /// Returns the position biases of a key, from `lane` on. Those of the next key begin one before.
  const float* position_biases(const Panel& panel, std::int64_t key, std::int64_t lane) const {
    const std::int64_t distance = panel.first_query + lane + head_.origin.offset - key;
    return scratch_.position_bias + (distance - first_distance_);
  }
  /// Returns the dense biases of one tile of the segment. The tile's first key is block + key.
  const float* bias_of(const Panel& panel, std::int64_t block, const Segment& segment,
                       std::int64_t key) {
    return bias_.tile(panel, block + key, segment.first_vector * kLanes, segment.vectors * kLanes);
  }

  void fill_visible(const Panel& panel, std::int64_t block, const Segment& segment) {
    const std::int64_t key = block + segment.first_key;
    const std::int64_t keys = std::min(segment.keys, head_.kv_len - key);
    const std::int64_t lane = segment.first_vector * kLanes;
    for (std::int64_t i = lane; i < lane + segment.vectors * kLanes; ++i) {
      std::uint8_t* row = scratch_.visible + i * setup_.block_keys + segment.first_key;
      if (i < panel.rows) {
        mask_.fill(head_.place(panel.first_query + i, key), keys, row);
        std::fill(row + keys, row + segment.keys, std::uint8_t{0});
      } else {
        std::fill(row, row + segment.keys, std::uint8_t{0});
      }
    }
  }

  const ForwardSetup& setup_;
  const ForwardHead& head_;
  const ScoreOptions& score_;
  const Mask& mask_;
  ForwardScratch& scratch_;
  BiasTiles bias_;
  const bool scores_are_scaled_;
  std::int64_t first_distance_ = 0;  // the distance of the first entry in the position bias table
  std::int64_t untested_positions_ = 0;  // of the table of position biases
  bool positions_are_moderate_ = true;   // those tested so far
  const Panel* ranged_ = nullptr;        // whose ranges find_segments() last used
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_STAGES_INL_H_
