// SPDX-License-Identifier: Apache-2.0
//
// Recomputed weights. With the lse of a row known, each weight is 2^(score - log2(e) lse),
// independent of the others. The cost of a rectangle of weights therefore depends only on its size.
// Sums over queries cost one more product of queries and keys; the fused pass cannot compute these
// sums, because it does not have the lse yet.
//
// The order. Keys are packed one block at a time, and all panels of queries are processed for each
// block, with the tiles, stages and masks of the forward pass (forward-inl.h). Sums over columns
// are kept as vectors, with one partial sum per lane, until the last panel.

#if defined(FOVEA_KERNELS_WEIGHTS_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_WEIGHTS_WEIGHTS_INL_H_
#undef FOVEA_KERNELS_WEIGHTS_WEIGHTS_INL_H_
#else
#define FOVEA_KERNELS_WEIGHTS_WEIGHTS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include <hwy/highway.h>

#include "kernels/simd/arena.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/tile/pack-inl.h"
#include "kernels/tile/panel-inl.h"
#include "kernels/tile/score-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/segments-inl.h"
#include "kernels/tile/stages-inl.h"
#include "kernels/tile/tile-inl.h"
#include "kernels/weights/weights.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Scratch memory: that of the forward pass, and additional buffers.
struct WeightsScratch {
  ForwardScratch forward;
  float* log2_sum;                // [lanes]
  float *sums, *maxima, *recent;  // [block_keys][kLanes]
  std::int32_t* bins;             // [lanes]

  template <class Arithmetic>
  std::size_t lay_out(std::byte* base, const WeightsSetup& setup) {
    const std::size_t before = forward.lay_out(base, scratch_sizes<Arithmetic>(setup));
    Arena arena(base == nullptr ? nullptr : base + before);
    log2_sum = arena.take<float>(kPanelLanes);
    sums = arena.take<float>(setup.block_keys * kLanes);
    maxima = arena.take<float>(setup.block_keys * kLanes);
    recent = arena.take<float>(setup.block_keys * kLanes);
    bins = arena.take<std::int32_t>(kPanelLanes);
    return before + arena.used();
  }
};

template <class Arithmetic>
class WeightsPass {
 public:
  WeightsPass(const WeightsSetup& setup, const WeightsItem& item, std::byte* scratch)
      : setup_(setup),
        item_(item),
        head_(item.head),
        stages_(setup, item.head, scratch_.forward, Arithmetic::kScalesQueries),
        score_factor_(stages_.score_factor()) {
    scratch_.template lay_out<Arithmetic>(scratch, setup);
  }

  void run(const std::stop_token& stop) {
    // Biases are loaded in aligned groups of kBiasKeys keys, so blocks start at multiples of
    // kBiasKeys.
    const std::int64_t first = item_.k_begin / kBiasKeys * kBiasKeys;
    for (std::int64_t block = first; block < item_.k_end; block += setup_.block_keys) {
      const std::int64_t count = std::min(setup_.block_keys, item_.k_end - block);
      const std::int64_t tiles = tiles_of(count);
      Arithmetic::pack_keys(head_.key, block, count, setup_.head_dim, scratch_.forward.keys);
      if (item_.of_columns()) begin_columns(tiles * kTileRows);
      for (std::int64_t q = item_.q_begin; q < item_.q_end; q += kPanelLanes) {
        if (stop.stop_requested()) return;
        visit(block, count, tiles, q, std::min(kPanelLanes, item_.q_end - q));
      }
      if (item_.of_columns()) write_columns(block, count);
    }
  }

 private:
  void visit(std::int64_t block, std::int64_t count, std::int64_t tiles, std::int64_t first_query,
             std::int64_t rows) {
    Panel& panel = *scratch_.forward.panels;
    panel.first_query = first_query;
    panel.rows = rows;
    panel.vectors = (rows + kLanes - 1) / kLanes;
    find_ranges(setup_.options->mask, head_, block, block + count, panel);
    const std::int64_t segments = stages_.find_segments(panel, block, tiles);
    if (segments == 0) {
      if (item_.numbers != nullptr) write_hidden(block, count, first_query, rows);
      if (item_.cells != nullptr) {
        std::fill_n(cells_of(panel), item_.columns * kPanelLanes, 0.0f);
      }
      return;
    }
    load(panel);
    const Segment& only = scratch_.forward.segments[0];
    if (item_.keeps() &&
        (segments > 1 || only.keys < tiles * kTileRows || only.vectors < panel.vectors)) {
      std::fill_n(scratch_.forward.scores, tiles * kTileRows * kPanelLanes,
                  item_.scores ? kMinusInfinity : 0.0f);
    }
    stages_.begin(first_query, kPanelLanes, block, block + count);
    for (std::int64_t s = 0; s < segments; ++s) {
      const Segment& segment = scratch_.forward.segments[s];
      if (segment.masked) stages_.prepare_mask(panel, block, segment);
      with_vectors(segment.vectors, [&](auto vectors) {
        compute<decltype(vectors)::value>(panel, block, count, segment);
      });
    }
    if (item_.numbers != nullptr) write_numbers_of(panel, block, count);
    if (item_.cells != nullptr) {
      if (item_.pool == Pool::kMax) {
        pool_columns(panel, block, [](Vector a, Vector b) HWY_ATTR { return larger(a, b); });
      } else {
        pool_columns(panel, block, [](Vector a, Vector b) HWY_ATTR { return hn::Add(a, b); });
      }
    }
  }

  void load(Panel& panel) {
    load_panel<Arithmetic>(head_.query, panel, setup_.head_dim, stages_.query_factor(),
                           panel.queries);
    for (std::int64_t i = 0; i < kPanelLanes; ++i) {
      const float lse =
          i < panel.rows ? item_.lse[(panel.first_query + i) * item_.lse_stride] : 0.0f;
      scratch_.log2_sum[i] =
          static_cast<float>(static_cast<double>(lse) * std::numbers::log2e_v<double>);
    }
  }

  /// Computes the scores of a segment and the results derived from them, tile by tile.
  template <int kVectors>
  HWY_INLINE void compute(const Panel& panel, std::int64_t block, std::int64_t count,
                          const Segment& segment) {
    const std::int64_t lane = segment.first_vector * kLanes;
    const std::int64_t key_steps = steps<Arithmetic>(setup_.head_dim);
    for (std::int64_t k = segment.first_key; k < segment.first_key + segment.keys; k += kTileRows) {
      tile<Arithmetic, kTileRows, kVectors, Finish::kStore>(
          scratch_.forward.keys + k * key_steps, panel.queries + lane, key_steps,
          scratch_.forward.scores + k * kPanelLanes + lane);
      if (stages_.any()) stages_.template run<kVectors>(panel, block, segment, k, kTileRows);
      if (scratch_.forward.masked[k / kTileRows] != 0) {
        stages_.template mask_tile<kVectors>(k, lane);
      }
      if (item_.scores) {
        finish_scores<kVectors>(k, lane);
        continue;
      }
      if (item_.histogram != nullptr)
        count_bins<kVectors>(panel, k, std::min(k + kTileRows, count), lane);
      finish_weights<kVectors>(panel, k, lane);
    }
  }

  /// Converts the scores of a tile from the kernel's base-2 units to those of the caller.
  template <int kVectors>
  HWY_INLINE void finish_scores(std::int64_t key, std::int64_t lane) {
    const Floats d;
    const Vector unit = hn::Set(d, score_factor_ * std::numbers::ln2_v<float>);
    float* at = scratch_.forward.scores + key * kPanelLanes + lane;
    for (int i = 0; i < kTileRows; ++i, at += kPanelLanes) {
      for (int v = 0; v < kVectors; ++v) {
        hn::Store(hn::Mul(unit, hn::Load(d, at + v * kLanes)), d, at + v * kLanes);
      }
    }
  }

  /// Converts the scores of a tile to weights, which are stored or accumulated per column. Weights
  /// of lanes without a row are 0.
  template <int kVectors>
  HWY_INLINE void finish_weights(const Panel& panel, std::int64_t key, std::int64_t lane) {
    const Floats d;
    const Vector factor = hn::Set(d, score_factor_);
    const Vector hidden = hn::Set(d, kMinusInfinity);
    const bool keeps = item_.keeps();
    const bool columns = item_.of_columns();
    const bool of_maxima = item_.maxima != nullptr;
    const std::int64_t old = item_.recent_begin - panel.first_query;  // lanes before recent_begin
    const bool recent = item_.recent != nullptr && old < panel.rows;
    Vector log2_sum[kVectors];
    hn::Mask<Floats> rows[kVectors];
    HWY_UNROLL(3)
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = lane + v * kLanes;
      log2_sum[v] = hn::Load(d, scratch_.log2_sum + at);
      rows[v] = first_lanes(panel.rows - at);
    }
    float* scores = scratch_.forward.scores + key * kPanelLanes + lane;
    for (std::int64_t k = key; k < key + kTileRows; ++k, scores += kPanelLanes) {
      Vector weights[kVectors];
      HWY_UNROLL(3)
      for (int v = 0; v < kVectors; ++v) {
        const Vector score = hn::Load(d, scores + v * kLanes);
        const Vector below = Arithmetic::kScalesQueries ? hn::Sub(score, log2_sum[v])
                                                        : hn::MulSub(factor, score, log2_sum[v]);
        const Vector weight = fovea::HWY_NAMESPACE::exp2_of_nonpositive(d, below);
        // Hidden keys have weight 0 even if the row's lse is NaN or -inf.
        const auto none = hn::Eq(score, hidden);
        weights[v] = hn::IfThenElseZero(rows[v], hn::IfThenZeroElse(none, weight));
        if (keeps) hn::Store(weights[v], d, scores + v * kLanes);
      }
      if (!columns) continue;
      Vector sum = weights[0];
      HWY_UNROLL(3)
      for (int v = 1; v < kVectors; ++v) sum = hn::Add(sum, weights[v]);
      float* const sums = scratch_.sums + k * kLanes;
      hn::Store(hn::Add(hn::Load(d, sums), sum), d, sums);
      if (of_maxima) {
        float* const maxima = scratch_.maxima + k * kLanes;
        Vector most = hn::Load(d, maxima);
        for (int v = 0; v < kVectors; ++v) most = larger(most, weights[v]);
        hn::Store(most, d, maxima);
      }
      if (recent) {
        float* const recents = scratch_.recent + k * kLanes;
        Vector late = hn::Load(d, recents);
        for (int v = 0; v < kVectors; ++v) {
          const auto early = first_lanes(old - lane - v * kLanes);
          late = hn::Add(late, hn::IfThenZeroElse(early, weights[v]));
        }
        hn::Store(late, d, recents);
      }
    }
  }

  static HWY_INLINE hn::Mask<Floats> first_lanes(std::int64_t count) {
    return hn::FirstN(Floats(),
                      static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, kLanes)));
  }

  // ---- rectangles -------------------------------------------------------------------------------

  float* numbers_at(std::int64_t query, std::int64_t key) const {
    return item_.numbers + (query - item_.q_begin) * item_.stride + (key - item_.k_begin);
  }

  void write_numbers_of(const Panel& panel, std::int64_t block, std::int64_t count) {
    // The first block may begin before k_begin.
    const std::int64_t skipped = std::max<std::int64_t>(item_.k_begin - block, 0);
    transpose(Numbers<float>{scratch_.forward.scores + skipped * kPanelLanes}, kPanelLanes,
              count - skipped, panel.rows, numbers_at(panel.first_query, block + skipped),
              item_.stride);
  }

  void write_hidden(std::int64_t block, std::int64_t count, std::int64_t first_query,
                    std::int64_t rows) {
    const std::int64_t from = std::max(block, item_.k_begin);
    for (std::int64_t q = first_query; q < first_query + rows; ++q) {
      std::fill_n(numbers_at(q, from), block + count - from, item_.scores ? kMinusInfinity : 0.0f);
    }
  }

  // ---- cells ------------------------------------------------------------------------------------

  float* cells_of(const Panel& panel) const {
    return item_.cells + (panel.first_query - item_.q_begin) * item_.columns;
  }

  template <class Join>
  HWY_INLINE void pool_columns(const Panel& panel, std::int64_t block, const Join& join) {
    const Floats d;
    float* to = cells_of(panel);
    for (std::int64_t c = 0; c < item_.columns; ++c, to += kPanelLanes) {
      Vector cell[kPanelVectors];
      HWY_UNROLL(3)
      for (int v = 0; v < kPanelVectors; ++v) cell[v] = hn::Zero(d);
      for (std::int64_t k = item_.column_begin[c]; k < item_.column_begin[c + 1]; ++k) {
        const float* const from = scratch_.forward.scores + (k - block) * kPanelLanes;
        HWY_UNROLL(3)
        for (int v = 0; v < kPanelVectors; ++v) {
          cell[v] = join(cell[v], hn::Load(d, from + v * kLanes));
        }
      }
      HWY_UNROLL(3)
      for (int v = 0; v < kPanelVectors; ++v) hn::StoreU(cell[v], d, to + v * kLanes);
    }
  }

  // ---- columns ----------------------------------------------------------------------------------

  void begin_columns(std::int64_t keys) {
    for (float* const to : {scratch_.sums, scratch_.maxima, scratch_.recent}) {
      std::fill_n(to, keys * kLanes, 0.0f);
    }
  }

  /// Returns the maximum per lane; NaN in lanes where either input is NaN.
  static HWY_INLINE Vector larger(Vector a, Vector b) {
    const auto keep = hn::Or(hn::Gt(a, b), hn::Not(hn::Eq(a, a)));
    return hn::IfThenElse(keep, a, b);
  }

  void write_columns(std::int64_t block, std::int64_t count) {
    const Floats d;
    const std::int64_t skipped = std::max<std::int64_t>(item_.k_begin - block, 0);
    for (std::int64_t k = skipped; k < count; ++k) {
      const std::int64_t at = block + k - item_.k_begin;
      const auto total = [&](const float* from) HWY_ATTR {
        return hn::GetLane(hn::SumOfLanes(d, hn::Load(d, from + k * kLanes)));
      };
      if (item_.sums != nullptr) item_.sums[at] = total(scratch_.sums);
      if (item_.recent != nullptr) item_.recent[at] = total(scratch_.recent);
      if (item_.maxima == nullptr) continue;
      float most = 0.0f;
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        const float one = scratch_.maxima[k * kLanes + lane];
        if (!(one <= most) && !std::isnan(most)) most = one;
      }
      item_.maxima[at] = most;
    }
  }

  /// Adds keys [key, end) to the histogram. Runs before scores become weights, because bins are
  /// computed from logarithms.
  template <int kVectors>
  void count_bins(const Panel& panel, std::int64_t key, std::int64_t end, std::int64_t lane) {
    const Floats d;
    const Ints di;
    const Vector factor = hn::Set(d, score_factor_);
    const Vector last = hn::Set(d, static_cast<float>(item_.bins - 1));
    for (std::int64_t k = key; k < end; ++k) {
      const float* const scores = scratch_.forward.scores + k * kPanelLanes;
      for (std::int64_t at = lane; at < lane + kVectors * kLanes; at += kLanes) {
        const Vector score = hn::Load(d, scores + at);
        const Vector log2_sum = hn::Load(d, scratch_.log2_sum + at);
        const Vector above = Arithmetic::kScalesQueries ? hn::Sub(log2_sum, score)
                                                        : hn::NegMulAdd(factor, score, log2_sum);
        const Vector bin = hn::Min(hn::Max(above, hn::Zero(d)), last);
        // Hidden pairs and pairs of NaN rows have no bin.
        const auto counts =
            hn::And(hn::Gt(score, hn::Set(d, kMinusInfinity)), hn::Eq(above, above));
        hn::Store(
            hn::IfThenElse(hn::RebindMask(di, counts), hn::ConvertTo(di, bin), hn::Set(di, -1)), di,
            scratch_.bins + at);
      }
      const std::int64_t rows = std::min(panel.rows, lane + kVectors * kLanes);
      for (std::int64_t i = lane; i < rows; ++i) {
        if (scratch_.bins[i] >= 0) ++item_.histogram[scratch_.bins[i]];
      }
    }
  }

  const WeightsSetup& setup_;
  const WeightsItem& item_;
  const ForwardHead& head_;
  WeightsScratch scratch_;
  ScoreStages stages_;
  const float score_factor_;  // remaining factor of the scores
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_WEIGHTS_WEIGHTS_INL_H_
