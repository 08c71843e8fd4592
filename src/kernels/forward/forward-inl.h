// SPDX-License-Identifier: Apache-2.0
//
// The fused forward pass: softmax(scale Q K^T + bias, masked) V for some queries of one head.
//
// Online softmax. Keys are processed in blocks. Each row keeps a running maximum m, a running sum l
// of 2^(s - m) and a running context o that is not yet divided by l. A block with scores s_j
// updates them:
//     m' = max(m, max_j s_j),  f = 2^(m - m'),  p_j = 2^(s_j - m')
//     l' = f l + sum_j p_j,    o' = f o + sum_j p_j v_j
// (Milakov and Gimelshein 2018; Rabe and Staats 2021; Dao et al. 2022). Scores are stored
// multiplied by log2(e), so that 2^x replaces the exponential; the factor is folded into the
// queries. Each block starts new sums, so the rounding error grows with
// block_keys + kv_len / block_keys instead of kv_len.
//
// Loop order. For each work item (a few panels of queries, tile-inl.h) and each block of keys, the
// keys and values are packed into tiles once. Then, for each panel: scores = Q K^T -> softcap,
// biases, masks -> softmax -> context. The packed keys and values of a block share the L2 cache
// with the panels. A panel of queries (B of the first product) and the current weights (B of the
// second product) stream through the L1 cache. While a block is processed, the rows of the next
// block are prefetched, a few cache lines per tile. Packing straight from memory cost 7 %
// (N = 4096, D = 128, Zen 4); with prefetching it costs 1 to 2 %.
//
// Masks. A row's mask gives a range of visible keys, which is exact for most masks. Tiles without a
// visible key are skipped, and so are the vectors of a tile whose rows see none of its keys: along
// the diagonal of a causal mask, tiles narrow from three vectors to one. Tiles that are fully
// visible to all rows have no mask overhead.
//
// Few queries. With a panel or two of queries, packing takes longer than it saves, and keys and
// values are read in place: the template parameter Keys (key_block-inl.h, key_rows-inl.h). A panel
// may then have rows of several heads (ForwardHead::heads).
//
// Alternatives tried. Keys along the lanes (6 x 64 tiles, the layout of most kernels): slower by 2
// to 3 percentage points of the ceiling, and it needs a padded head dimension and horizontal
// reductions per row. Reading keys in place for many queries: the first product is 10 % slower
// because of eight strided streams. A polynomial of degree 5 for 2^x: 0.2 percentage points
// faster, but twice the error.
//
// Arithmetic. A template parameter selects the element type and packed layout of the products'
// operands: float32 (float_arithmetic-inl.h), or pairs of bfloat16 (bf16_arithmetic-inl.h).
//
// NaN. A hidden key has weight 0, but 0 * NaN is NaN. Packing therefore detects non-finite values
// and packs them as zeros. The actual values are added afterwards to the contexts of the rows that
// see the keys. Values in place are tested by their products (key_rows-inl.h).

#if defined(FOVEA_KERNELS_FORWARD_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_FORWARD_FORWARD_INL_H_
#undef FOVEA_KERNELS_FORWARD_FORWARD_INL_H_
#else
#define FOVEA_KERNELS_FORWARD_FORWARD_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>

#include <hwy/highway.h>

#include "fovea/simd_math-inl.h"

#include "kernels/forward/forward.h"
#include "kernels/lenses/lenses-inl.h"
#include "kernels/tile/dropout-inl.h"
#include "kernels/tile/key_block-inl.h"
#include "kernels/tile/key_rows-inl.h"
#include "kernels/tile/panel-inl.h"
#include "kernels/tile/prefetcher.h"
#include "kernels/tile/score-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/segments-inl.h"
#include "kernels/tile/stages-inl.h"
#include "kernels/tile/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Returns the scratch size of a pass with `Keys` and `Lenses`. The scratch of the lenses follows
/// that of the pass.
template <class Keys, class Lenses>
std::size_t item_scratch_bytes(const ForwardSetup& setup) {
  return ForwardScratch().lay_out(nullptr, Keys::scratch_sizes(setup)) +
         Lenses::scratch_bytes(setup);
}

/// One work item: some queries of one head or, in place, of several heads, and all keys visible to
/// them. `Keys` computes the
/// products with a block of keys and values: KeyBlock, KeyRows or AmxKeys. `Lenses` is NoLenses,
/// ItemLenses or, with AmxKeys, AmxLenses.
template <class Keys, class Lenses>
class ItemPass {
 public:
  using Arithmetic = typename Keys::Arithmetic;
  using ItsLenses = Lenses;
  /// Whether the softmax is that of `Keys`, with weights relative to other numbers than the true
  /// maxima.
  static constexpr bool kOwnSoftmax = Keys::kHasPipeline;

  ItemPass(const ForwardSetup& setup, const ForwardItem& item, const ForwardItem* next,
           std::byte* scratch)
      : setup_(setup),
        item_(item),
        head_(item.head),
        next_(next),
        score_(setup.options->score),
        mask_(setup.options->mask),
        stages_(setup, item.head, scratch_, Arithmetic::kScalesQueries),
        keys_(setup, item.head, scratch_),
        dropout_(dropout_of(setup, item.head)),
        score_factor_(stages_.score_factor()),
        pushes_(kOwnSoftmax && !stages_.any() && !dropout_),
        lenses_(setup, item.head, scratch_,
                scratch + scratch_.lay_out(scratch, Keys::scratch_sizes(setup)), score_factor_) {}

  void run(const std::stop_token& stop) {
    for (std::int64_t q = item_.q_begin; q < item_.q_end; q += kPanelLanes) {
      open_panel(panels_++, q, std::min(kPanelLanes, item_.q_end - q));
    }
    stages_.begin(item_.q_begin, panels_ * kPanelLanes, keys_begin_, keys_end_);
    // Blocks begin at multiples of block_keys, so results do not depend on the split into items.
    const std::int64_t together = keys_.keys_together();
    for (std::int64_t key = keys_begin_ / together * together; key < keys_end_; key += together) {
      for (std::int64_t p = 0; p < panels_; ++p) {
        if (stop.stop_requested()) return;
        if (!scratch_.panels[p].closed) visit_keys(p, key, std::min(key + together, keys_end_));
      }
      if constexpr (Keys::kHasPipeline) keys_.flush(*this, score_factor_);
    }
    for (std::int64_t p = 0; p < panels_; ++p) {
      if (!scratch_.panels[p].closed) close_panel(p);
    }
  }

  /// Calls redo(begin, end) for runs of queries that Keys has refused.
  template <class Redo>
  void for_refused(const Redo& redo) const {
    std::int64_t begin = item_.q_begin;
    for (std::int64_t q = item_.q_begin; q < item_.q_end; ++q) {
      const std::int64_t row = q - item_.q_begin;
      if ((scratch_.panels[row / kPanelLanes].refused >> row % kPanelLanes & 1) != 0) continue;
      if (begin < q) redo(begin, q);
      begin = q + 1;
    }
    if (begin < item_.q_end) redo(begin, item_.q_end);
  }

  // ---- called by the pipeline of Keys

  Lenses& lenses() { return lenses_; }
  /// Processes a block that the pipeline does not.
  void attend_block(std::int64_t p, std::int64_t block) {
    const std::int64_t count = std::min(setup_.block_keys, head_.kv_len - block);
    const std::int64_t tiles = tiles_of(count);
    keys_.enter(block, count);
    attend(p, block, tiles, find_segments(mask_, head_, scratch_.panels[p], block, tiles, scratch_),
           false);
  }
  /// Writes the results of a panel. The weights of the first `segments` segments are yet to be
  /// multiplied with the values.
  void close_panel(std::int64_t p, std::int64_t segments = 0) {
    Panel& panel = scratch_.panels[p];
    panel.closed = true;
    if (segments == 0) keys_.begin_context(panel);  // it may have no visible key
    if constexpr (kOwnSoftmax) {
      if (!panel.loaded) lenses_.open(p, panel);
    }
    if (score_.sinks.empty() && head_.lse.data == nullptr) {
      normalize(panel);
    } else {
      normalize_with_sink(panel);
    }
    lenses_.close(p, panel, lens_factor());
    if (head_.context.data == nullptr) return;
    if constexpr (Keys::kMayWriteProduct) {
      if (segments > 0) return keys_.write_product(panel, segments, [&] { fetch_rows(); });
    }
    keys_.write_context(panel);
  }

  Keys& keys() { return keys_; }

 private:
  /// Whether lenses have other factors than contexts, those of exact weights.
  static constexpr bool kOwnLensFactor = kOwnSoftmax && !Lenses::kNone;
  float* lens_factor() const { return kOwnLensFactor ? scratch_.block_lse_sum : scratch_.factor; }

  // ---- panels -----------------------------------------------------------------------------------

  void open_panel(std::int64_t p, std::int64_t first_query, std::int64_t rows) {
    const Floats d;
    Panel& panel = scratch_.panels[p];
    panel.first_query = first_query;
    panel.rows = rows;
    panel.vectors = Keys::kHasPipeline ? kPanelVectors : (rows + kLanes - 1) / kLanes;
    panel.loaded = panel.begun = panel.closed = false;
    panel.refused = 0;
    find_ranges(mask_, head_, panel);
    if constexpr (Keys::kHasPipeline) {
      panel.whole_begin = pushes_ && panel.exact ? 0 : head_.kv_len;
      panel.whole_end = head_.kv_len;
      for (std::int64_t v = 0; v < panel.vectors; ++v) {
        panel.whole_begin = std::max(panel.whole_begin, panel.ranges[v].all_begin);
        panel.whole_end = std::min(panel.whole_end, panel.ranges[v].all_end);
      }
    }
    if (panel.keys_begin < panel.keys_end) {
      keys_begin_ = keys_end_ == 0 ? panel.keys_begin : std::min(keys_begin_, panel.keys_begin);
      keys_end_ = std::max(keys_end_, panel.keys_end);
    }
    for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
      hn::Store(hn::Set(d, kLowest), d, panel.maximum + lane);
      hn::Store(hn::Zero(d), d, panel.sum + lane);
      hn::Store(hn::Zero(d), d, panel.lse_sum + lane);
    }
    if constexpr (!kOwnSoftmax) lenses_.open(p, panel);
  }

  /// Loads the queries unless they are loaded. Returns false if all rows are left to another pass.
  bool begin_panel(std::int64_t p) {
    Panel& panel = scratch_.panels[p];
    if (panel.loaded) return true;
    if constexpr (Keys::kMayRefuse) {
      if (!refuse(panel, keys_.unfit_queries(panel))) return false;
    }
    panel.loaded = true;
    if constexpr (kOwnSoftmax) lenses_.open(p, panel);
    load_queries<Arithmetic>(head_, panel, setup_.head_dim, stages_.query_factor(), panel.queries);
    if constexpr (Keys::kMayRefuse) keys_.clear_queries(panel, panel.refused);
    return true;
  }

  /// Leaves rows to another pass; other rows of the panel are not affected. Returns false if no row
  /// is left here.
  bool refuse(Panel& panel, std::uint64_t rows) {
    panel.refused |= rows;
    if (std::popcount(panel.refused) < panel.rows) return true;
    keys_.flush(*this, score_factor_);
    panel.closed = true;
    return false;
  }

  /// Computes factor = 1 / sum, or 0 for a row without a visible key.
  void normalize(const Panel& panel) {
    const Floats d;
    for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
      const auto write = [&](const float* sums, float* to) HWY_ATTR {
        const Vector sum = hn::Load(d, sums + lane);
        const Vector factor = hn::Div(hn::Set(d, 1.0f), sum);
        hn::Store(hn::IfThenZeroElse(hn::Eq(sum, hn::Zero(d)), factor), d, to + lane);
      };
      write(panel.sum, scratch_.factor);
      if constexpr (kOwnLensFactor) write(panel.lse_sum, lens_factor());
    }
  }

  /// Computes the same factors with the sink's share, and writes lse.
  void normalize_with_sink(const Panel& panel) {
    constexpr double kLn2 = std::numbers::ln2_v<double>;
    const bool sink = !score_.sinks.empty();
    const double sink_logit =
        sink ? score_.sinks[static_cast<std::size_t>(head_.origin.head)] : 0.0;
    for (std::int64_t lane = 0; lane < panel.rows; ++lane) {
      double maximum = Keys::reference(panel.maximum[lane], score_factor_);
      // A saturated maximum was already -FLT_MAX, or nearly, before the factor log2(e).
      if (panel.maximum[lane] == kLowest) maximum /= kLn2;
      double sum = static_cast<double>(panel.sum[lane]);
      double lse_sum = static_cast<double>(panel.lse_sum[lane]);
      double shrink = 1.0;
      if (sink && std::isfinite(sink_logit)) {
        // The sink is one more score, without a value.
        const double logit = sink_logit / kLn2;
        const double before = sum == 0.0 ? logit : maximum;
        maximum = std::max(before, logit);
        shrink = std::exp2(before - maximum);
        const double more = std::exp2(logit - maximum);
        sum = sum * shrink + more;
        lse_sum = lse_sum * shrink + more;
      }
      // A row without a visible key or sink has context 0 and lse -inf.
      scratch_.factor[lane] = sum == 0.0 ? 0.0f : static_cast<float>(shrink / sum);
      if constexpr (kOwnLensFactor) {
        lens_factor()[lane] = sum == 0.0 ? 0.0f : static_cast<float>(shrink / lse_sum);
      }
      if (head_.lse.data != nullptr) {
        head_.lse_of(panel.first_query + lane) =
            sum == 0.0 ? kMinusInfinity : static_cast<float>(maximum * kLn2 + std::log(lse_sum));
      }
    }
  }

  // ---- blocks of keys ---------------------------------------------------------------------------

  /// Processes the keys [begin, end), whole blocks, for one panel.
  void visit_keys(std::int64_t p, std::int64_t begin, std::int64_t end) {
    Panel& panel = scratch_.panels[p];
    const std::int64_t seen = panel.keys_begin / setup_.block_keys * setup_.block_keys;
    bool last = panel.keys_end <= begin;
    bool pushed = false;    // to the pipeline, which closes the panel
    std::int64_t left = 0;  // segments for close_panel() to multiply
    for (std::int64_t block = std::max(begin, seen); block < end && !last;
         block += setup_.block_keys) {
      if constexpr (Keys::kHasPipeline) {
        pushed = push_whole(p, block, last);
        if (pushed) continue;
      }
      const std::int64_t count = std::min(setup_.block_keys, head_.kv_len - block);
      const std::int64_t tiles = tiles_of(count);
      last = block + count >= panel.keys_end;
      const std::int64_t segments = find_segments(mask_, head_, panel, block, tiles, scratch_);
      pushed = false;
      if (segments == 0) continue;
      if (keys_.enter(block, count)) prefetch_next_block(block + count, tiles);
      if constexpr (Keys::kMayRefuse) {
        if (!refuse(panel, keys_.rows_that_see_unfit(panel))) return;
      }
      if (!begin_panel(p)) return;
      if constexpr (Keys::kHasPipeline) {
        pushed = push(p, block, segments, last);
        if (pushed) continue;
        keys_.flush(*this, score_factor_);
        attend_block(p, block);  // flush() may have entered another block
      } else {
        prefetch_around(p, tiles, last);
        left = attend(p, block, tiles, segments, last);
      }
    }
    if (!last || pushed) return;
    if constexpr (Keys::kHasPipeline) keys_.flush(*this, score_factor_);
    close_panel(p, left);
  }

  /// push() for a block whose keys are all visible, without a look at its tiles.
  bool push_whole(std::int64_t p, std::int64_t block, bool& last) {
    Panel& panel = scratch_.panels[p];
    const std::int64_t end = block + setup_.block_keys;
    if (block < panel.whole_begin || end > panel.whole_end) return false;
    keys_.enter(block, setup_.block_keys);
    if (!keys_.may_push()) return false;
    if (!begin_panel(p)) return false;
    last = end >= panel.keys_end;
    typename Keys::Part& part = keys_.next();
    part.panel = &panel;
    part.panel_number = p;
    part.block = block;
    part.first_key = 0;
    part.keys = setup_.block_keys;
    part.masked[0] = part.masked[1] = false;
    part.last = last;
    keys_.push(*this, score_factor_);
    return true;
  }

  /// Hands the visible part of a block to the pipeline of `Keys`. Returns false, without any
  /// effect, if the block needs other stages than it has.
  bool push(std::int64_t p, std::int64_t block, std::int64_t segments, bool last) {
    Panel& panel = scratch_.panels[p];
    if (!pushes_ || !keys_.may_push()) return false;
    typename Keys::Part& part = keys_.next();
    part.panel = &panel;
    part.panel_number = p;
    part.block = block;
    part.first_key = scratch_.segments[0].first_key;
    part.last = last;
    part.masked[0] = part.masked[1] = true;  // as keys outside all segments are
    for (std::int64_t s = 0; s < segments; ++s) {
      const Segment& segment = scratch_.segments[s];
      const std::int64_t end = segment.first_key + segment.keys;
      part.keys = end - part.first_key;
      for (std::int64_t t = segment.first_key / kTileRows; t < end / kTileRows; ++t) {
        part.masked[t] = scratch_.masked[t] != 0 || segment.vectors < panel.vectors;
      }
    }
    if (!panel.exact && (part.masked[0] || part.masked[part.keys / kTileRows - 1])) return false;
    keys_.push(*this, score_factor_);
    return true;
  }

  /// Starts prefetching the queries of the next panel (if it is not loaded yet) or of the next
  /// item. While the last block of this panel is processed, also prefetches the panel's context
  /// rows.
  void prefetch_around(std::int64_t p, std::int64_t tiles, bool last) {
    const Panel& panel = scratch_.panels[p];
    if (p + 1 < panels_) {
      const Panel& next = scratch_.panels[p + 1];
      if (!next.loaded) prefetch_queries(head_, next.first_query, next.rows, tiles);
    } else if (last && next_ != nullptr) {
      prefetch_queries(next_->head, next_->q_begin,
                       std::min(kPanelLanes, next_->q_end - next_->q_begin), tiles);
    }
    // Rows of several heads are usually too few to matter, unless they follow each other.
    const bool whole = last && head_.context.data != nullptr && head_.context_is_even();
    context_rows_.start(head_.context, panel.first_query, whole ? panel.rows : 0, setup_.value_dim,
                        value_tiles());
  }
  void prefetch_queries(const ForwardHead& head, std::int64_t row, std::int64_t count,
                        std::int64_t tiles) {
    const std::int64_t query = head.query_of(row);
    if (head.heads > 1) count = std::min(count, head.q_len - query);
    next_queries_.start(head.query_rows(row), query, count, setup_.head_dim, tiles);
  }
  std::int64_t value_tiles() const { return std::max<std::int64_t>(1, tiles_of(setup_.value_dim)); }

  /// Starts prefetching the keys and values of the next block, or of the next item's first block.
  void prefetch_next_block(std::int64_t next, std::int64_t tiles) {
    const bool ours = next < keys_end_;
    if (!ours && next_ == nullptr) return;
    const ForwardHead& head = ours ? head_ : next_->head;
    const std::int64_t first = ours ? next : 0;
    const std::int64_t rows = std::min(setup_.block_keys, (ours ? keys_end_ : head.kv_len) - first);
    next_keys_.start(head.key, first, rows, setup_.head_dim, panels_ * tiles);
    next_values_.start(head.value, first, rows, setup_.value_dim, panels_ * value_tiles());
  }

  // ---- one panel and one block ------------------------------------------------------------------

  /// Returns the number of segments whose weights close_panel() is to multiply with the values.
  std::int64_t attend(std::int64_t p, std::int64_t block, std::int64_t tiles, std::int64_t segments,
                      bool last) {
    const Floats d;
    Panel& panel = scratch_.panels[p];
    for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
      hn::Store(hn::Set(d, kLowest), d, scratch_.block_maximum + lane);
      hn::Store(hn::Zero(d), d, scratch_.block_sum + lane);
    }
    if constexpr (!kOwnSoftmax) lenses_.begin_block(panel, tiles);
    for (std::int64_t s = 0; s < segments; ++s) {
      const Segment& segment = scratch_.segments[s];
      if (segment.masked) stages_.prepare_mask(panel, block, segment);
      with_vectors(segment.vectors, [&](auto vectors) {
        compute_scores<decltype(vectors)::value>(panel, block, segment);
      });
      keys_.note_who_sees_doubtful(segment);
    }
    if constexpr (kOwnSoftmax) {
      keys_.raise(panel, scratch_.block_maximum, score_factor_);
      lenses_.rescale(p, panel);
    } else {
      lenses_.look_at_scores(p, panel, block, tiles, segments);
      raise_panel_maximum(panel);
    }
    lenses_.begin_weights(p, panel, block, segments);
    for (std::int64_t s = 0; s < segments; ++s) {
      const Segment& segment = scratch_.segments[s];
      with_vectors(segment.vectors, [&](auto vectors) {
        if constexpr (kOwnSoftmax) {
          keys_.template compute_weights<decltype(vectors)::value>(panel, block, segment,
                                                                   score_factor_, dropout_);
          lenses_.look_at_weights(p, panel, block, segment);
        } else if (lenses_.watches_weights()) {
          lenses_.template compute_weights<decltype(vectors)::value>(p, panel, block, segment);
        } else if (dropout_) {
          compute_weights<decltype(vectors)::value, true>(panel, block, segment);
        } else {
          compute_weights<decltype(vectors)::value, false>(panel, block, segment);
        }
      });
    }
    if constexpr (kOwnSoftmax) {
      keys_.add_block_sums(panel);
    } else {
      lenses_.end_weights(p);
      add_block_sum(panel);
    }
    if (head_.context.data == nullptr) return 0;
    if constexpr (Keys::kMayWriteProduct) {
      if (last && keys_.may_write_product(panel)) return segments;
    }
    // A pipeline begins with the first sums instead.
    if constexpr (!Keys::kHasPipeline) keys_.begin_context(panel);
    for (std::int64_t s = 0; s < segments; ++s) {
      const Segment& segment = scratch_.segments[s];
      with_vectors(segment.vectors,
                   [&](auto vectors) { add_values<decltype(vectors)::value>(panel, segment); });
      keys_.add_doubtful(panel, segment);
    }
    return 0;
  }

  template <int kVectors>
  HWY_INLINE void compute_scores(const Panel& panel, std::int64_t block, const Segment& segment) {
    const std::int64_t lane = segment.first_vector * kLanes;
    const bool stages = stages_.any();
    for (std::int64_t k = segment.first_key; k < segment.first_key + segment.keys; k += kTileRows) {
      float* scores = scratch_.scores + k * kPanelLanes + lane;
      const bool masked = scratch_.masked[k / kTileRows] != 0;
      next_keys_.fetch();
      next_queries_.fetch();
      float* maximum = scratch_.block_maximum;
      if constexpr (!kOwnSoftmax) maximum = lenses_.maximum_of(k, maximum);
      // If stages or a mask follow, the maximum is computed after them.
      keys_.template scores<kVectors>(
          k, panel.queries + lane, scores,
          (stages || masked ? scratch_.ignored_maximum : maximum) + lane);
      if (!stages && !masked) continue;
      if (stages) stages_.run(panel, block, k, lane, kVectors * kLanes);
      if (masked) stages_.mask_tile(panel, k, lane, kVectors * kLanes);
      raise_maximum(scores, kVectors * kLanes, maximum + lane);
    }
  }

  /// Computes maximum = max(maximum, block_maximum), factor = 2^(old - new) and sum *= factor.
  void raise_panel_maximum(const Panel& panel) {
    const Floats d;
    for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
      const Vector before = hn::Load(d, panel.maximum + lane);
      const Vector after = hn::Max(before, hn::Load(d, scratch_.block_maximum + lane));
      const Vector sum = hn::Load(d, panel.sum + lane);
      // Skips rescaling where the sum is 0, because the context is then 0, too.
      const Vector factor =
          hn::IfThenElse(hn::Eq(sum, hn::Zero(d)), hn::Set(d, 1.0f),
                         fovea::HWY_NAMESPACE::exp2_of_nonpositive(
                             d, hn::Mul(hn::Set(d, score_factor_), hn::Sub(before, after))));
      hn::Store(after, d, panel.maximum + lane);
      hn::Store(factor, d, scratch_.factor + lane);
      hn::Store(hn::Mul(factor, sum), d, panel.sum + lane);
    }
  }

  /// Computes weights = 2^(factor * (scores - maximum)) in place, and their sum. Dropout is applied
  /// after the sum.
  template <int kVectors, bool kDropout>
  HWY_INLINE void compute_weights(const Panel& panel, std::int64_t block, const Segment& segment) {
    const Floats d;
    const std::int64_t lane = segment.first_vector * kLanes;
    const Vector factor = hn::Set(d, score_factor_);
    Vector maximum[kVectors], sum[kVectors];
    HWY_UNROLL(3)
    for (int v = 0; v < kVectors; ++v) {
      maximum[v] = hn::Load(d, panel.maximum + lane + v * kLanes);
      sum[v] = hn::Load(d, scratch_.block_sum + lane + v * kLanes);
    }
    const float* const scores = scratch_.scores + lane;
    float* const weights = scratch_.weights + lane;
    // A segment consists of whole tiles, so its number of keys is even. Two keys at a time give
    // more instruction-level parallelism.
    for (std::int64_t k = segment.first_key; k < segment.first_key + segment.keys; k += 2) {
      if (kDropout && k % kTileRows == 0) {
        dropout_->tile(panel.first_query + lane, block + k, kVectors * kLanes, scratch_.kept);
      }
      HWY_UNROLL(3)
      for (int v = 0; v < kVectors; ++v) {
        Vector pair[2];
        HWY_UNROLL(2)
        for (int i = 0; i < 2; ++i) {
          const Vector score = hn::Load(d, scores + (k + i) * kPanelLanes + v * kLanes);
          // Subtract before multiplying: for huge scores, the rounding error of factor * maximum
          // exceeds the range of exponents.
          const Vector below = hn::Sub(score, maximum[v]);
          pair[i] = Arithmetic::exp2_of_nonpositive(
              Arithmetic::kScalesQueries ? below : hn::Mul(factor, below));
          sum[v] = hn::Add(sum[v], pair[i]);
          if constexpr (kDropout) {
            const float* kept = scratch_.kept + (k % kTileRows + i) * kPanelLanes + v * kLanes;
            pair[i] = hn::Mul(pair[i], hn::Load(d, kept));
          }
        }
        Arithmetic::store_weights(pair[0], pair[1], weights + v * kLanes, k);
      }
    }
    HWY_UNROLL(3)
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sum[v], d, scratch_.block_sum + lane + v * kLanes);
    }
  }

  void add_block_sum(const Panel& panel) {
    const Floats d;
    for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
      hn::Store(hn::Add(hn::Load(d, panel.sum + lane), hn::Load(d, scratch_.block_sum + lane)), d,
                panel.sum + lane);
    }
  }

  template <int kVectors>
  HWY_INLINE void add_values(Panel& panel, const Segment& segment) {
    const Floats d;
    const std::int64_t lane = segment.first_vector * kLanes;
    keys_.template add_values<kVectors>(panel, segment, [&] { fetch_rows(); });
    // The context of earlier blocks has been rescaled and must not be rescaled again.
    for (std::int64_t v = 0; v < kVectors; ++v) {
      hn::Store(hn::Set(d, 1.0f), d, scratch_.factor + lane + v * kLanes);
    }
  }

  void fetch_rows() {
    next_values_.fetch();
    context_rows_.fetch();
  }

  const ForwardSetup& setup_;
  const ForwardItem& item_;
  const ForwardHead& head_;
  const ForwardItem* next_;
  const ScoreOptions& score_;
  const Mask& mask_;
  ForwardScratch scratch_;
  ScoreStages stages_;
  Keys keys_;
  std::optional<DropoutLanes> dropout_;
  const float score_factor_;  // the softmax multiplies scores by it
  const bool pushes_;         // whether blocks may be pushed into the pipeline of `Keys`
  Lenses lenses_;
  std::int64_t panels_ = 0;
  std::int64_t keys_begin_ = 0;  // the range of all keys visible to the item's rows
  std::int64_t keys_end_ = 0;
  Prefetcher<const void> next_keys_, next_values_, next_queries_;
  Prefetcher<void> context_rows_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_FORWARD_FORWARD_INL_H_
