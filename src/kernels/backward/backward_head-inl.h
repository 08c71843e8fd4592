// SPDX-License-Identifier: Apache-2.0
//
// The fused backward pass (backward-inl.h): one query head against one block of keys.

#if defined(FOVEA_KERNELS_BACKWARD_BACKWARD_HEAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_BACKWARD_BACKWARD_HEAD_INL_H_
#undef FOVEA_KERNELS_BACKWARD_BACKWARD_HEAD_INL_H_
#else
#define FOVEA_KERNELS_BACKWARD_BACKWARD_HEAD_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include <hwy/highway.h>

#include "kernels/backward/backward.h"
#include "kernels/backward/backward_scratch.h"
#include "kernels/backward/bias_gradient-inl.h"
#include "kernels/backward/relevance-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/tile/dropout-inl.h"
#include "kernels/tile/pack-inl.h"
#include "kernels/tile/panel-inl.h"
#include "kernels/tile/prefetcher.h"
#include "kernels/tile/row_tile-inl.h"
#include "kernels/tile/score-inl.h"
#include "kernels/tile/segments-inl.h"
#include "kernels/tile/stages-inl.h"
#include "kernels/tile/tile-inl.h"
#include "problem/dropout.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Returns the setup of the recomputed part of the forward pass, which needs no values.
inline ForwardSetup without_values(ForwardSetup setup) {
  setup.value_dim = 0;
  return setup;
}

template <class Arithmetic>
BackwardScratchSizes backward_scratch_sizes(const BackwardSetup& setup) {
  const ForwardSetup& forward = setup.forward;
  const AttentionOptions& options = *forward.options;
  return {.forward = scratch_sizes<Arithmetic>(without_values(forward)),
          .row_stride = Arithmetic::kRowStride,
          .value_steps = steps<Arithmetic>(forward.value_dim),
          .block_steps = steps<Arithmetic>(forward.block_keys),
          .key_width = whole_vectors(forward.head_dim),
          .value_width = whole_vectors(forward.value_dim),
          .rows_are_pairs = Arithmetic::kRowsArePairs,
          .derivative = options.score.softcap > 0 || options.score.custom.tile != nullptr,
          .bias_rows = setup.grad_bias ? forward.block_keys : 0,
          .bias_columns = whole_panels(std::max<std::int64_t>(setup.most_queries, 1)),
          .distances = setup.buckets > 0
                           ? whole_panels(setup.most_queries) + forward.block_keys + kTileRows
                           : 0,
          .relevance = setup.relevance ? kRelevanceSums : 0};
}

/// Packs `count` rows, starting at row `first`, with Arithmetic::pack_rows. Rows with a NaN or
/// infinity are packed as zeros. Returns the number of these rows, and lists them in `doubtful`
/// unless it is null.
template <class Arithmetic>
std::int32_t pack_finite_rows(const InputRows& rows, std::int64_t first, std::int64_t count,
                              std::int64_t kept, std::int64_t dim, float* to, std::int64_t width,
                              std::int32_t* doubtful) {
  if (Arithmetic::pack_rows(rows, first, count, kept, dim, to, width)) return 0;
  std::int32_t found = 0;
  for (std::int64_t r = 0; r < count; ++r) {
    if (row_is_finite(rows, first + r, dim)) continue;
    if (doubtful != nullptr) doubtful[found] = static_cast<std::int32_t>(r);
    ++found;
    Arithmetic::clear_row(to, r, width);
  }
  return found;
}

/// One query head against one block of keys.
template <class Arithmetic>
class HeadPass {
 public:
  HeadPass(const BackwardSetup& setup, const BackwardHead& head, std::int64_t block,
           BackwardScratch& scratch, BiasGradient& bias, KeyRelevance& relevance)
      : setup_(setup),
        forward_(setup.forward),
        head_(head),
        block_(block),
        scratch_(scratch),
        panel_(*scratch.forward.panels),
        stages_(setup.forward, head.forward, scratch.forward, Arithmetic::kScalesQueries),
        bias_(bias),
        relevance_(relevance),
        dropout_(dropout_of(setup.forward, head.forward)),
        score_factor_(stages_.score_factor()),
        rescored_(stages_.any()),
        derivative_(stages_.has_derivative()),
        key_width_(whole_vectors(forward_.head_dim)),
        value_width_(whole_vectors(forward_.value_dim)) {}

  std::int64_t panels() const { return whole_panels(head_.q_len) / kPanelLanes; }

  /// Processes a panel, except for adding its query gradients to those of other blocks. Returns
  /// false if the panel does not attend to the block.
  bool attend(std::int64_t panel) {
    const KeyBounds& bounds = head_.bounds[panel];
    const std::int64_t count = std::min(forward_.block_keys, head_.forward.kv_len - block_);
    if (bounds.begin >= block_ + count || bounds.end <= block_) return false;
    panel_.first_query = panel * kPanelLanes;
    panel_.rows = std::min(kPanelLanes, head_.q_len - panel_.first_query);
    panel_.vectors = (panel_.rows + kLanes - 1) / kLanes;
    find_ranges(forward_.options->mask, head_.forward, panel_);
    const std::int64_t tiles = (count + kTileRows - 1) / kTileRows;
    const std::int64_t segments = find_segments(forward_.options->mask, head_.forward, panel_,
                                                block_, tiles, scratch_.forward);
    if (segments == 0) return false;
    stages_.begin(panel_.first_query, kPanelLanes, block_, block_ + count);
    load();
    prefetch_next(tiles);
    for (std::int64_t s = 0; s < segments; ++s) {
      const Segment& segment = scratch_.forward.segments[s];
      if (segment.masked) stages_.prepare_mask(panel_, block_, segment);
      with_vectors(segment.vectors,
                   [&](auto vectors) { compute_weights<decltype(vectors)::value>(segment); });
    }
    for (std::int64_t s = 0; s < segments; ++s) {
      const Segment& segment = scratch_.forward.segments[s];
      add_to_keys(segment);
      if (setup_.grad_query) add_to_queries(segment);
    }
    return true;
  }

  /// Adds the panel's query gradients to those of other blocks.
  void add_query_gradients() {
    const Floats d;
    const std::int64_t dim = forward_.head_dim;
    const Vector scale = hn::Set(d, static_cast<float>(forward_.scale));
    for (std::int64_t r = 0; r < panel_.rows; ++r) {
      float* to = head_.grad_query + (panel_.first_query + r) * head_.grad_query_stride;
      const float* from = scratch_.query_sums + r * key_width_;
      std::int64_t c = 0;
      for (; c + kLanes <= dim; c += kLanes) {
        hn::StoreU(hn::MulAdd(scale, hn::Load(d, from + c), hn::LoadU(d, to + c)), d, to + c);
      }
      for (; c < dim; ++c) to[c] += static_cast<float>(forward_.scale) * from[c];
    }
  }

 private:
  /// Prefetches the inputs of the next panel, and the rows of grad_query to which the current
  /// panel's gradients are added.
  void prefetch_next(std::int64_t tiles) {
    const std::int64_t next = panel_.first_query - kPanelLanes;
    const std::int64_t rows = next < 0 ? 0 : kPanelLanes;
    next_queries_.start(head_.forward.query, next, rows, forward_.head_dim, tiles);
    next_grads_.start(head_.grad_context, next, rows, forward_.value_dim, tiles);
    const OutputRows sums{head_.grad_query, head_.grad_query_stride, DType::kFloat32};
    query_sums_.start(sums, panel_.first_query, head_.grad_query == nullptr ? 0 : panel_.rows,
                      forward_.head_dim, tiles);
  }

  void load() {
    load_panel<Arithmetic>(head_.forward.query, panel_, forward_.head_dim, stages_.query_factor(),
                           panel_.queries);
    if (setup_.of_scores()) {
      load_panel<Arithmetic>(head_.grad_context, panel_, forward_.value_dim, 1.0f,
                             scratch_.grad_panel);
    }
    const auto pack = [&](const InputRows& rows, std::int64_t dim, float* to, std::int64_t width) {
      return pack_finite_rows<Arithmetic>(rows, panel_.first_query, panel_.rows, kPanelLanes, dim,
                                          to, width, scratch_.doubtful);
    };
    if (setup_.grad_key) {
      pack(head_.forward.query, forward_.head_dim, scratch_.query_rows, key_width_);
    }
    if (setup_.grad_value) {
      doubtful_ = pack(head_.grad_context, forward_.value_dim, scratch_.grad_rows, value_width_);
    }
    std::copy_n(head_.log2_sum + panel_.first_query, panel_.rows, scratch_.log2_sum);
    spoilt_ = std::any_of(scratch_.log2_sum, scratch_.log2_sum + panel_.rows,
                          [](float sum) { return std::isnan(sum); });
    std::copy_n(head_.delta + panel_.first_query, panel_.rows, scratch_.delta);
    // Lanes without a row have scores of -inf and therefore weight 0.
    std::fill(scratch_.log2_sum + panel_.rows, scratch_.log2_sum + kPanelLanes, 0.0f);
    std::fill(scratch_.delta + panel_.rows, scratch_.delta + kPanelLanes, 0.0f);
    if (setup_.grad_query) {
      std::fill_n(scratch_.query_sums, kPanelLanes * key_width_, 0.0f);
    }
  }

  template <int kVectors>
  HWY_INLINE void compute_weights(const Segment& segment) {
    const std::int64_t lane = segment.first_vector * kLanes;
    const std::int64_t lanes = kVectors * kLanes;
    const std::int64_t key_steps = steps<Arithmetic>(forward_.head_dim);
    const std::int64_t value_steps = steps<Arithmetic>(forward_.value_dim);
    const bool of_scores = setup_.of_scores();
    const bool plain = of_scores && !derivative_ && !bias_.any() && !dropout_ && !spoilt_;
    for (std::int64_t k = segment.first_key; k < segment.first_key + segment.keys; k += kTileRows) {
      next_queries_.fetch();
      next_grads_.fetch();
      query_sums_.fetch();
      tile<Arithmetic, kTileRows, kVectors, Finish::kStore>(
          scratch_.forward.keys + k * key_steps, panel_.queries + lane, key_steps,
          scratch_.forward.scores + k * kPanelLanes + lane);
      if (rescored_) {
        stages_.run(panel_, block_, k, lane, lanes,
                    derivative_ ? scratch_.derivative + lane : nullptr);
      }
      if (scratch_.forward.masked[k / kTileRows] != 0) stages_.mask_tile(panel_, k, lane, lanes);
      hide_lanes_without_row(k, lane + lanes);
      float* const gradients = gradients_of(k) + lane;
      if (of_scores) {
        tile<Arithmetic, kTileRows, kVectors, Finish::kStore>(scratch_.value_keys + k * value_steps,
                                                              scratch_.grad_panel + lane,
                                                              value_steps, gradients);
      }
      if (plain) {
        finish_tile<kVectors, true>(k, lane, of_scores);
        continue;
      }
      if (dropout_) {
        dropout_->tile(panel_.first_query + lane, block_ + k, lanes, scratch_.forward.kept + lane);
      }
      finish_tile<kVectors, false>(k, lane, of_scores);
      if (!of_scores) continue;
      if (bias_.any()) bias_.add(gradients, k, panel_.first_query + lane, lane, lanes);
      store_gradients<kVectors>(k, lane);
    }
  }

  /// Sets the scores of lanes without a row to -inf. Stages may leave NaN there, and sums run over
  /// all lanes.
  HWY_INLINE void hide_lanes_without_row(std::int64_t k, std::int64_t end) {
    for (std::int64_t i = 0; i < kTileRows && panel_.rows < end; ++i) {
      float* const scores = scratch_.forward.scores + (k + i) * kPanelLanes;
      std::fill(scores + panel_.rows, scores + end, kMinusInfinity);
    }
  }

  /// Returns the score gradients of the tile whose first key is `key`.
  float* gradients_of(std::int64_t key) const {
    return scratch_.gradients + (Arithmetic::kRowsArePairs ? key * kPanelLanes : 0);
  }

  /// Computes the weights of a tile from its scores, and the score gradients from dP. Unless
  /// kPlain, also applies dropout, gives hidden keys weight 0 even in rows whose lse is NaN, and
  /// leaves the gradients in the buffer of dP. Accumulates relevance if requested.
  template <int kVectors, bool kPlain>
  HWY_INLINE void finish_tile(std::int64_t k, std::int64_t lane, bool of_scores) {
    if (relevance_.any()) {
      finish_watched_tile<kVectors, kPlain>(k, lane, of_scores);
    } else {
      finish_tile<kVectors, kPlain, false>(k, lane, of_scores);
    }
  }

  /// Out of line, so that passes without relevance have no additional register pressure.
  template <int kVectors, bool kPlain>
  HWY_NOINLINE void finish_watched_tile(std::int64_t k, std::int64_t lane, bool of_scores) {
    finish_tile<kVectors, kPlain, true>(k, lane, of_scores);
  }

  template <int kVectors, bool kPlain, bool kWatched>
  HWY_INLINE void finish_tile(std::int64_t k, std::int64_t lane, bool of_scores) {
    const Floats d;
    const Vector factor = hn::Set(d, score_factor_);
    const float* const scores = scratch_.forward.scores + k * kPanelLanes + lane;
    float* const gradients = gradients_of(k) + lane;
    const GradientRows rows = gradient_rows();
    float* const weight_rows = scratch_.weight_rows;
    HWY_UNROLL(3)
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = lane + v * kLanes;
      const Vector log2_sum = hn::Load(d, scratch_.log2_sum + at);
      const Vector delta = hn::Load(d, scratch_.delta + at);
      HWY_UNROLL(4)
      for (std::int64_t i = 0; i < kTileRows; i += 2) {
        Vector kept[2];
        Vector gradient[2];
        HWY_UNROLL(2)
        for (int j = 0; j < 2; ++j) {
          const std::int64_t here = (i + j) * kPanelLanes + v * kLanes;
          const Vector score = hn::Load(d, scores + here);
          const Vector below = Arithmetic::kScalesQueries ? hn::Sub(score, log2_sum)
                                                          : hn::MulSub(factor, score, log2_sum);
          Vector weight = Arithmetic::exp2_of_nonpositive(below);
          if constexpr (!kPlain) {
            const auto hidden = hn::Eq(score, hn::Set(d, kMinusInfinity));
            weight = hn::IfThenZeroElse(hidden, weight);
          }
          kept[j] = weight;
          Vector grad = hn::Zero(d);
          if (kPlain || of_scores) grad = hn::Load(d, gradients + here);
          if constexpr (!kPlain) {
            if (dropout_) {
              const Vector keep = hn::Load(d, scratch_.forward.kept + (i + j) * kPanelLanes + at);
              kept[j] = hn::Mul(keep, weight);
              grad = hn::Mul(keep, grad);
            }
          }
          const auto none = hn::Eq(weight, hn::Zero(d));
          if constexpr (kWatched) {
            relevance_.add(hn::IfThenZeroElse(none, hn::Mul(weight, grad)), k + i + j);
          }
          gradient[j] = hn::IfThenZeroElse(none, hn::Mul(weight, hn::Sub(grad, delta)));
          if constexpr (!kPlain) hn::Store(gradient[j], d, gradients + here);
        }
        Arithmetic::store_rows(kept[0], kept[1], weight_rows, k + i, at);
        if constexpr (kPlain) store_pair(gradient, rows, k + i, at);
      }
    }
  }

  /// Buffers of score gradients in the layouts that the sums read: `rows` for dK, and `pairs` for
  /// dQ if its layout differs.
  struct GradientRows {
    float* rows;
    float* pairs;
  };
  GradientRows gradient_rows() const { return {scratch_.gradient_rows, scratch_.forward.scores}; }

  static HWY_INLINE void store_pair(const Vector (&gradient)[2], const GradientRows& to,
                                    std::int64_t key, std::int64_t lane) {
    Arithmetic::store_rows(gradient[0], gradient[1], to.rows, key, lane);
    if constexpr (!Arithmetic::kRowsArePairs) {
      Arithmetic::store_weights(gradient[0], gradient[1], to.pairs + lane, key);
    }
  }

  /// Multiplies score gradients by the derivative of the stages before the bias, and stores them.
  /// The unmultiplied gradients have already been added to bias_.
  template <int kVectors>
  HWY_INLINE void store_gradients(std::int64_t k, std::int64_t lane) {
    const Floats d;
    const float* const gradients = gradients_of(k) + lane;
    for (int v = 0; v < kVectors; ++v) {
      for (std::int64_t i = 0; i < kTileRows; i += 2) {
        Vector gradient[2];
        for (int j = 0; j < 2; ++j) {
          const std::int64_t here = (i + j) * kPanelLanes + v * kLanes;
          gradient[j] = hn::Load(d, gradients + here);
          if (!derivative_) continue;
          const Vector slope = hn::Load(d, scratch_.derivative + lane + here);
          gradient[j] =
              hn::IfThenZeroElse(hn::Eq(gradient[j], hn::Zero(d)), hn::Mul(gradient[j], slope));
        }
        store_pair(gradient, gradient_rows(), k + i, lane + v * kLanes);
      }
    }
  }

  void add_to_keys(const Segment& segment) {
    const std::int64_t lane = segment.first_vector * kLanes;
    const std::int64_t step = lane / Arithmetic::kPerStep;
    const std::int64_t count = segment.vectors * kLanes / Arithmetic::kPerStep;
    const std::int64_t row = segment.first_key * Arithmetic::kRowStride + step;
    if (setup_.grad_value) {
      add_rows<Arithmetic, Layout<Arithmetic::kRowStride, 1>>(
          segment.keys, value_width_, scratch_.weight_rows + row,
          scratch_.grad_rows + step * value_width_, value_width_, count,
          scratch_.value_sums + segment.first_key * value_width_, value_width_);
      add_doubtful(segment);
    }
    if (setup_.grad_key) {
      add_rows<Arithmetic, Layout<Arithmetic::kRowStride, 1>>(
          segment.keys, key_width_, scratch_.gradient_rows + row,
          scratch_.query_rows + step * key_width_, key_width_, count,
          scratch_.key_sums + segment.first_key * key_width_, key_width_);
    }
  }

  /// Adds the contributions of the rows of dO that were packed as zeros to the gradients of the
  /// keys visible to these rows.
  void add_doubtful(const Segment& segment) {
    for (std::int32_t i = 0; i < doubtful_; ++i) {
      const std::int32_t r = scratch_.doubtful[i];
      if (r / kLanes < segment.first_vector ||
          r / kLanes >= segment.first_vector + segment.vectors) {
        continue;
      }
      for (std::int64_t k = segment.first_key; k < segment.first_key + segment.keys; ++k) {
        const float weight = Arithmetic::row_weight(scratch_.weight_rows, k, r);
        if (weight == 0.0f) continue;
        for (std::int64_t c = 0; c < forward_.value_dim; ++c) {
          scratch_.value_sums[k * value_width_ + c] +=
              weight * number_at(head_.grad_context, panel_.first_query + r, c);
        }
      }
    }
  }

  void add_to_queries(const Segment& segment) {
    const std::int64_t lane = segment.first_vector * kLanes;
    const float* const pairs =
        Arithmetic::kRowsArePairs ? scratch_.gradient_rows : scratch_.forward.scores;
    // The number of keys that fit in the L1 cache.
    constexpr std::int64_t kTogether = 96;
    for (std::int64_t k = segment.first_key; k < segment.first_key + segment.keys; k += kTogether) {
      const std::int64_t keys = std::min(kTogether, segment.first_key + segment.keys - k);
      const std::int64_t step = steps<Arithmetic>(k);
      add_rows<Arithmetic, Layout<1, kPanelLanes>>(
          segment.vectors * kLanes, key_width_, pairs + step * kPanelLanes + lane,
          scratch_.key_rows + step * key_width_, key_width_, steps<Arithmetic>(keys),
          scratch_.query_sums + lane * key_width_, key_width_);
    }
  }

  const BackwardSetup& setup_;
  const ForwardSetup& forward_;
  const BackwardHead& head_;
  const std::int64_t block_;  // its first key
  BackwardScratch& scratch_;
  Panel& panel_;
  ScoreStages stages_;
  BiasGradient& bias_;
  KeyRelevance& relevance_;
  std::optional<DropoutLanes> dropout_;
  const float score_factor_;  // remaining factor of the scores
  const bool rescored_;       // stages run between the product and the weights
  const bool derivative_;
  const std::int64_t key_width_, value_width_;
  std::int32_t doubtful_ = 0;
  bool spoilt_ = false;  // some row's lse is NaN
  Prefetcher<const void> next_queries_, next_grads_;
  Prefetcher<void> query_sums_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_BACKWARD_BACKWARD_HEAD_INL_H_
