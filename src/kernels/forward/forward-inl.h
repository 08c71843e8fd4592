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
// may then have rows of several heads (ForwardHead::heads). Up to one and a half vectors of queries
// have a first product of their own (quads-inl.h).
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
#include <cstdint>

#include <hwy/highway.h>

#include "kernels/forward/forward.h"
#include "kernels/forward/item_prefetch-inl.h"
#include "kernels/forward/running_softmax-inl.h"
#include "kernels/lenses/lenses-inl.h"
#include "kernels/tile/key_block-inl.h"
#include "kernels/tile/key_rows-inl.h"
#include "kernels/tile/panel-inl.h"
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
/// them. `Keys` computes the products with a block of keys and values: KeyBlock, KeyRows or
/// AmxKeys. `Lenses` is NoLenses, ItemLenses or, with AmxKeys, AmxLenses.
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
        mask_(setup.options->mask),
        stages_(setup, item.head, scratch_, Arithmetic::kScalesQueries),
        keys_(setup, item.head, scratch_),
        score_factor_(stages_.score_factor()),
        softmax_(setup, item.head, scratch_, score_factor_),
        pushes_(kOwnSoftmax && !stages_.any() && !softmax_.dropout()),
        lenses_(setup, item.head, scratch_,
                scratch + scratch_.lay_out(scratch, Keys::scratch_sizes(setup)), score_factor_),
        prefetch_(setup, item, next) {
    if constexpr (Keys::kPrefetches) {
      if (next != nullptr) keys_.set_next(next->head);
    }
  }

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
    attend(p, block, tiles, stages_.find_segments(scratch_.panels[p], block, tiles), false);
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
    softmax_.finish(panel);
    lenses_.close(p, panel, softmax_.lens_factor());
    if (head_.context.data == nullptr) return;
    if constexpr (Keys::kMayWriteProduct) {
      if (segments > 0)
        return keys_.write_product(panel, stages_.ranges(), segments,
                                   [&] { prefetch_.fetch_for_values(); });
    }
    keys_.write_context(panel);
  }

  Keys& keys() { return keys_; }

 private:
  // ---- panels -----------------------------------------------------------------------------------

  void open_panel(std::int64_t p, std::int64_t first_query, std::int64_t rows) {
    const Floats d;
    Panel& panel = scratch_.panels[p];
    panel.first_query = first_query;
    panel.rows = rows;
    panel.vectors = Keys::kHasPipeline ? kPanelVectors : (rows + kLanes - 1) / kLanes;
    panel.loaded = panel.begun = panel.closed = false;
    panel.refused = 0;
    find_ranges(mask_, head_, 0, head_.kv_len, panel);
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
    keys_.load_queries(panel, stages_.query_factor());
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
      const std::int64_t segments = stages_.find_segments(panel, block, tiles);
      pushed = false;
      if (segments == 0) continue;
      if (keys_.enter(block, count)) {
        start_block(block + count, count);
      }
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
        if (p + 1 < panels_) {
          prefetch_.start_queries(scratch_.panels[p + 1], tiles);
        } else if (last) {
          prefetch_.start_next_item(tiles);
        }
        prefetch_.start_contexts(panel, last, keys_.value_fetches(panel.rows, count));
        left = attend(p, block, tiles, segments, last);
      }
    }
    if (!last || pushed) return;
    if constexpr (Keys::kHasPipeline) keys_.flush(*this, score_factor_);
    close_panel(p, left);
  }

  /// Starts to prefetch the block at key `block`. The current block has `count` keys.
  void start_block(std::int64_t block, std::int64_t count) {
    const std::int64_t last_rows = scratch_.panels[panels_ - 1].rows;
    std::int64_t score_fetches = panels_ * tiles_of(count);
    std::int64_t value_fetches = (panels_ - 1) * keys_.value_fetches(kPanelLanes, count) +
                                 keys_.value_fetches(last_rows, count);
    if constexpr (Keys::kPrefetches) {
      if (keys_.prefetches_keys()) score_fetches = 0;
      if (keys_.prefetches_values()) value_fetches = 0;
    }
    prefetch_.start_block(block, keys_end_, score_fetches, value_fetches);
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
      softmax_.raise(panel);
    }
    lenses_.begin_weights(p, panel, block, segments);
    for (std::int64_t s = 0; s < segments; ++s) {
      const Segment& segment = scratch_.segments[s];
      with_vectors(segment.vectors, [&](auto vectors) {
        if constexpr (kOwnSoftmax) {
          keys_.template compute_weights<decltype(vectors)::value>(
              panel, block, segment, score_factor_, softmax_.dropout());
          lenses_.look_at_weights(p, panel, block, segment);
        } else if (lenses_.watches_weights()) {
          lenses_.template compute_weights<decltype(vectors)::value>(p, panel, block, segment);
        } else {
          softmax_.template compute_weights<decltype(vectors)::value>(panel, block, segment);
        }
      });
    }
    if constexpr (kOwnSoftmax) {
      keys_.add_block_sums(panel);
    } else {
      lenses_.end_weights(p);
      softmax_.add_block_sums(panel);
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
    const std::int64_t end = segment.first_key + segment.keys;
    for (std::int64_t k = segment.first_key; k < end; k += kTileRows) {
      float* scores = scratch_.scores + k * kPanelLanes + lane;
      const bool masked = scratch_.masked[k / kTileRows] != 0;
      prefetch_.fetch_for_scores();
      float* const maximum = maximum_of(k);
      if (stages) {
        Addend addend;
        RowsAhead ahead;
        const bool adds =
            Keys::kMayAdd && stages_.find_addend(panel, block, segment, k, addend, ahead);
        if (!adds) {
          const std::int64_t keys = std::min(kStageKeys, end - k);
          compute_stages<kVectors>(panel, block, segment, k, keys);
          k += keys - kTileRows;
          continue;
        }
        if constexpr (Keys::kMayAdd) {
          stages_.with_rows_ahead(ahead, [&](auto& between) HWY_ATTR {
            keys_.template scores_plus<kVectors>(
                addend, k, panel.queries + lane, scores,
                (masked ? scratch_.ignored_maximum : maximum) + lane, between);
          });
        }
      } else {
        keys_.template scores<kVectors>(panel, k, lane, scores,
                                        (masked ? scratch_.ignored_maximum : maximum) + lane);
      }
      if (!masked) continue;
      // The maximum is computed after the mask.
      stages_.template mask_tile<kVectors>(k, lane);
      raise_maximum(scores, kVectors * kLanes, maximum + lane);
    }
  }

  /// Computes the scores of `keys` keys, at most kStageKeys, with all stages. Not inlined into the
  /// loop over tiles, because the constants of the stages would take registers of the product.
  template <int kVectors>
  HWY_NOINLINE void compute_stages(const Panel& panel, std::int64_t block, const Segment& segment,
                                   std::int64_t key, std::int64_t keys) {
    constexpr std::int64_t lanes = kVectors * kLanes;
    const std::int64_t lane = segment.first_vector * kLanes;
    const std::int64_t end = key + keys;
    // The stages raise the maximum, unless a mask follows or the tiles have separate maxima.
    float* maximum = maximum_of(key);
    for (std::int64_t k = key; k < end; k += kTileRows) {
      if (k > key) prefetch_.fetch_for_scores();
      keys_.template scores<kVectors, Finish::kStore>(panel, k, lane,
                                                      scratch_.scores + k * kPanelLanes + lane,
                                                      scratch_.ignored_maximum + lane);
      if (scratch_.masked[k / kTileRows] != 0 || maximum_of(k) != maximum) maximum = nullptr;
    }
    stages_.template run<kVectors>(panel, block, segment, key, keys, nullptr,
                                   maximum == nullptr ? nullptr : maximum + lane);
    if (maximum != nullptr) return;
    for (std::int64_t k = key; k < end; k += kTileRows) {
      if (scratch_.masked[k / kTileRows] != 0) stages_.template mask_tile<kVectors>(k, lane);
      raise_maximum(scratch_.scores + k * kPanelLanes + lane, lanes, maximum_of(k) + lane);
    }
  }

  /// Returns the maxima that the scores of a tile of keys raise.
  float* maximum_of(std::int64_t key) {
    if constexpr (kOwnSoftmax)
      return scratch_.block_maximum;
    else
      return lenses_.maximum_of(key, scratch_.block_maximum);
  }

  template <int kVectors>
  HWY_INLINE void add_values(Panel& panel, const Segment& segment) {
    const Floats d;
    const std::int64_t lane = segment.first_vector * kLanes;
    keys_.template add_values<kVectors>(panel, segment, [&] { prefetch_.fetch_for_values(); });
    // The context of earlier blocks has been rescaled and must not be rescaled again.
    for (std::int64_t v = 0; v < kVectors; ++v) {
      hn::Store(hn::Set(d, 1.0f), d, scratch_.factor + lane + v * kLanes);
    }
  }

  const ForwardSetup& setup_;
  const ForwardItem& item_;
  const ForwardHead& head_;
  const Mask& mask_;
  ForwardScratch scratch_;
  ScoreStages stages_;
  Keys keys_;
  const float score_factor_;  // the softmax multiplies scores by it
  RunningSoftmax<Keys, kOwnSoftmax && !Lenses::kNone> softmax_;
  const bool pushes_;  // whether blocks may be pushed into the pipeline of `Keys`
  Lenses lenses_;
  std::int64_t panels_ = 0;
  std::int64_t keys_begin_ = 0;  // the range of all keys visible to the item's rows
  std::int64_t keys_end_ = 0;
  ItemPrefetch prefetch_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_FORWARD_FORWARD_INL_H_
