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
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include <hwy/highway.h>

#include "kernels/backward/backward.h"
#include "kernels/backward/backward_scratch.h"
#include "kernels/backward/bias_gradient-inl.h"
#include "kernels/backward/item_prefetch-inl.h"
#include "kernels/backward/relevance-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/tile/dropout-inl.h"
#include "kernels/tile/panel-inl.h"
#include "kernels/tile/score-inl.h"
#include "kernels/tile/segments-inl.h"
#include "kernels/tile/stages-inl.h"
#include "problem/dropout.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Returns the sizes of the scratch memory: those of the products, and of everything else.
template <class Products>
BackwardScratchSizes backward_scratch_sizes(const BackwardSetup& setup) {
  const ForwardSetup& forward = setup.forward;
  const ScoreOptions& score = forward.options->score;
  BackwardScratchSizes sizes = Products::scratch_sizes(setup);
  const bool derivative = score.softcap > 0 || score.custom.tile != nullptr;
  sizes.queries = Products::kPanels * kPanelLanes;
  sizes.derivative = derivative ? kTileRows * kPanelLanes : 0;
  sizes.bias_rows = setup.grad_bias ? forward.block_keys : 0;
  sizes.bias_columns = whole_panels(std::max<std::int64_t>(setup.most_queries, 1));
  sizes.distances =
      setup.buckets > 0 ? whole_panels(setup.most_queries) + forward.block_keys + kTileRows : 0;
  sizes.relevance = setup.relevance ? kRelevanceSums : 0;
  return sizes;
}

/// One query head against one block of keys.
template <class Products>
class HeadPass {
 public:
  HeadPass(const BackwardSetup& setup, const BackwardHead& head, std::int64_t number,
           std::int64_t block, BackwardScratch& scratch, Products& products, BiasGradient& bias,
           KeyRelevance& relevance, BackwardPrefetch& prefetch)
      : setup_(setup),
        forward_(setup.forward),
        head_(head),
        head_number_(number),
        block_(block),
        scratch_(scratch),
        products_(products),
        stages_(setup.forward, head.forward, scratch.forward, Products::Arithmetic::kScalesQueries),
        bias_(bias),
        relevance_(relevance),
        prefetch_(prefetch),
        dropout_(dropout_of(setup.forward, head.forward)),
        score_factor_(stages_.score_factor()),
        rescored_(stages_.any()),
        derivative_(stages_.has_derivative()) {}

  /// The number of queries that are processed together.
  static constexpr std::int64_t kQueries = Products::kPanels * kPanelLanes;

  std::int64_t groups() const { return (head_.q_len + kQueries - 1) / kQueries; }

  /// Processes a group of panels, except for adding its query gradients to those of other blocks.
  /// Returns false if no row of the group attends to the block.
  bool attend(std::int64_t group) {
    const std::int64_t count = std::min(forward_.block_keys, head_.forward.kv_len - block_);
    const std::int64_t first = group * kQueries;
    rows_ = std::min(kQueries, head_.q_len - first);
    if (!may_attend(first, count)) return false;
    for (std::int64_t q = 0; q < rows_; q += kPanelLanes) {
      Panel& panel = scratch_.forward.panels[q / kPanelLanes];
      panel.first_query = first + q;
      panel.rows = std::min(kPanelLanes, rows_ - q);
      panel.vectors = Products::kWholePanels ? kPanelVectors : (panel.rows + kLanes - 1) / kLanes;
      find_ranges(forward_.options->mask, head_.forward, block_, block_ + count, panel);
    }
    stages_.begin(first, kQueries, block_, block_ + count);
    loaded_ = false;
    const std::int64_t stretch_keys = products_.stretch_keys();
    for (stretch_ = 0; stretch_ < count; stretch_ += stretch_keys) {
      attend_stretch(std::min(stretch_keys, count - stretch_), count);
    }
    products_.end_stretches();
    return loaded_;
  }

  /// Adds the group's query gradients to those of other blocks.
  void add_query_gradients() {
    for (std::int64_t q = 0; q < rows_; q += kPanelLanes) {
      const Panel& panel = scratch_.forward.panels[q / kPanelLanes];
      products_.add_query_gradients(panel, q / kPanelLanes,
                                    head_.grad_query + panel.first_query * head_.grad_query_stride,
                                    head_.grad_query_stride);
    }
  }

 private:
  /// Returns whether bounds allow the group, from query `first` on, to attend to the block. Items
  /// that are computed by other products than most may have groups of another size.
  bool may_attend(std::int64_t first, std::int64_t count) const {
    const std::int64_t together = setup_.queries_together;
    for (std::int64_t i = first / together; i <= (first + rows_ - 1) / together; ++i) {
      if (head_.bounds[i].begin < block_ + count && head_.bounds[i].end > block_) return true;
    }
    return false;
  }

  /// Processes `keys` keys of the block, which has `count`, from key stretch_ on.
  void attend_stretch(std::int64_t keys, std::int64_t count) {
    products_.begin_stretch(stretch_);
    const std::int64_t tiles = tiles_of(keys);
    std::int64_t segments = 0;
    for (std::int64_t q = 0; q < rows_; q += kPanelLanes) {
      number_ = q / kPanelLanes;
      panel_ = &scratch_.forward.panels[number_];
      segments = stages_.find_segments(*panel_, block_ + stretch_, tiles);
      if (segments == 0) continue;
      if (!loaded_) {
        load();
        prefetch_.start_group(head_, head_number_, scratch_.forward.panels[0].first_query, rows_,
                              kQueries, tiles_of(count));
        loaded_ = true;
      }
      for (std::int64_t s = 0; s < segments; ++s) {
        Segment& segment = scratch_.forward.segments[s];
        if constexpr (Products::kWholePanels) widen(segment);
        if (segment.masked) stages_.prepare_mask(*panel_, block_ + stretch_, segment);
        with_vectors(segment.vectors,
                     [&](auto vectors) { compute_weights<decltype(vectors)::value>(segment); });
      }
    }
    if (loaded_) products_.add_stretch(head_, *panel_, segments);
  }

  /// Extends a segment to all vectors of its panel.
  void widen(Segment& segment) {
    if (segment.vectors == panel_->vectors) return;
    segment.first_vector = 0;
    segment.vectors = panel_->vectors;
    segment.masked = true;
    std::fill_n(scratch_.forward.masked + segment.first_key / kTileRows, segment.keys / kTileRows,
                std::uint8_t{1});
  }

  void load() {
    const std::int64_t first = scratch_.forward.panels[0].first_query;
    for (std::int64_t q = 0; q < rows_; q += kPanelLanes) {
      const std::int64_t number = q / kPanelLanes;
      products_.load(head_, scratch_.forward.panels[number], number, stages_.query_factor());
    }
    std::copy_n(head_.log2_sum + first, rows_, scratch_.log2_sum);
    std::copy_n(head_.delta + first, rows_, scratch_.delta);
    // Rounding may turn a NaN with other bits into a number.
    const auto is_nan = [](float x) { return std::isnan(x); };
    spoilt_ = std::any_of(scratch_.log2_sum, scratch_.log2_sum + rows_, is_nan);
    constexpr float kUsualNan = std::numeric_limits<float>::quiet_NaN();
    std::replace_if(scratch_.log2_sum, scratch_.log2_sum + rows_, is_nan, kUsualNan);
    std::replace_if(scratch_.delta, scratch_.delta + rows_, is_nan, kUsualNan);
    // Lanes without a row have scores of -inf and therefore weight 0.
    std::fill(scratch_.log2_sum + rows_, scratch_.log2_sum + kQueries, 0.0f);
    std::fill(scratch_.delta + rows_, scratch_.delta + kQueries, 0.0f);
  }

  template <int kVectors>
  HWY_INLINE void compute_weights(const Segment& segment) {
    const std::int64_t lane = segment.first_vector * kLanes;
    const std::int64_t lanes = kVectors * kLanes;
    const bool of_scores = setup_.of_scores();
    const bool plain = of_scores && !derivative_ && !bias_.any() && !dropout_ && !spoilt_;
    for (std::int64_t k = segment.first_key; k < segment.first_key + segment.keys; k += kTileRows) {
      prefetch_.fetch();
      if constexpr (Products::kHasPipeline) {
        if (plain && !rescored_ && !relevance_.any() && panel_->rows == kPanelLanes &&
            scratch_.forward.masked[k / kTileRows] == 0) {
          products_.push(*panel_, number_, k, score_factor_);
          continue;
        }
      }
      products_.template scores<kVectors>(*panel_, number_, k, lane);
      if (rescored_) {
        stages_.template run<kVectors>(*panel_, block_ + stretch_, segment, k, kTileRows,
                                       derivative_ ? scratch_.derivative + lane : nullptr);
      }
      if (scratch_.forward.masked[k / kTileRows] != 0) {
        stages_.template mask_tile<kVectors>(k, lane);
      }
      hide_lanes_without_row(k, lane + lanes);
      if (of_scores) products_.template weight_gradients<kVectors>(number_, k, lane);
      if (plain) {
        finish_tile<kVectors, true>(k, lane, of_scores);
      } else {
        finish_with_options<kVectors>(k, lane, of_scores);
      }
      products_.end_tile(number_, k);
    }
  }

  /// finish_tile() for tiles that are not plain.
  template <int kVectors>
  HWY_INLINE void finish_with_options(std::int64_t k, std::int64_t lane, bool of_scores) {
    const std::int64_t lanes = kVectors * kLanes;
    const std::int64_t query = panel_->first_query + lane;
    if (dropout_) {
      dropout_->tile(query, block_ + stretch_ + k, lanes, scratch_.forward.kept + lane);
    }
    finish_tile<kVectors, false>(k, lane, of_scores);
    if (!of_scores) return;
    if (bias_.any()) {
      bias_.add(products_.gradients_of(k) + lane, stretch_ + k, query, lane, lanes);
    }
    store_gradients<kVectors>(k, lane);
  }

  /// Sets the scores of lanes without a row to -inf. Stages may leave NaN there, and sums run over
  /// all lanes.
  HWY_INLINE void hide_lanes_without_row(std::int64_t k, std::int64_t end) {
    for (std::int64_t i = 0; i < kTileRows && panel_->rows < end; ++i) {
      float* const scores = scratch_.forward.scores + (k + i) * kPanelLanes;
      std::fill(scores + panel_->rows, scores + end, kMinusInfinity);
    }
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
    float* const gradients = products_.gradients_of(k) + lane;
    const float* const log2_sums = scratch_.log2_sum + number_ * kPanelLanes;
    const float* const deltas = scratch_.delta + number_ * kPanelLanes;
    HWY_UNROLL(3)
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = lane + v * kLanes;
      const Vector log2_sum = hn::Load(d, log2_sums + at);
      const Vector delta = hn::Load(d, deltas + at);
      HWY_UNROLL(4)
      for (std::int64_t i = 0; i < kTileRows; i += 2) {
        Vector kept[2];
        Vector gradient[2];
        HWY_UNROLL(2)
        for (int j = 0; j < 2; ++j) {
          const std::int64_t here = (i + j) * kPanelLanes + v * kLanes;
          const Vector score = hn::Load(d, scores + here);
          const Vector below = Products::Arithmetic::kScalesQueries
                                   ? hn::Sub(score, log2_sum)
                                   : hn::MulSub(factor, score, log2_sum);
          Vector weight = Products::weight(below);
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
            relevance_.add(hn::IfThenZeroElse(none, hn::Mul(weight, grad)), stretch_ + k + i + j);
          }
          gradient[j] = hn::IfThenZeroElse(none, hn::Mul(weight, hn::Sub(grad, delta)));
          if constexpr (!kPlain) hn::Store(gradient[j], d, gradients + here);
        }
        products_.store_weights(kept, k + i, at);
        if constexpr (kPlain) products_.store_gradients(gradient, k + i, at);
      }
    }
  }

  /// Multiplies score gradients by the derivative of the stages before the bias, and stores them.
  /// The unmultiplied gradients have already been added to bias_.
  template <int kVectors>
  HWY_INLINE void store_gradients(std::int64_t k, std::int64_t lane) {
    const Floats d;
    const float* const gradients = products_.gradients_of(k) + lane;
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
        products_.store_gradients(gradient, k + i, lane + v * kLanes);
      }
    }
  }

  const BackwardSetup& setup_;
  const ForwardSetup& forward_;
  const BackwardHead& head_;
  const std::int64_t head_number_;  // in the item
  const std::int64_t block_;        // its first key
  BackwardScratch& scratch_;
  Products& products_;
  ScoreStages stages_;
  BiasGradient& bias_;
  KeyRelevance& relevance_;
  BackwardPrefetch& prefetch_;
  std::optional<DropoutLanes> dropout_;
  const float score_factor_;  // remaining factor of the scores
  const bool rescored_;       // stages run between the product and the weights
  const bool derivative_;
  std::int64_t rows_ = 0;     // of the group
  std::int64_t stretch_ = 0;  // the first key of the stretch, counted from block_
  Panel* panel_ = nullptr;    // of the group,
  std::int64_t number_ = 0;   // and its number
  bool loaded_ = false;       // the group's queries
  bool spoilt_ = false;       // some row's lse is NaN
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_BACKWARD_BACKWARD_HEAD_INL_H_
