// SPDX-License-Identifier: Apache-2.0
//
// The fused forward pass: softmax(scale Q K^T + bias, masked) V for some queries of one head.
//
// The maths. Keys come in blocks. Per row, the running maximum m and sum l of 2^(s - m) and the
// running context o, not yet divided by l, meet a block with scores s_j:
//     m' = max(m, max_j s_j),  f = 2^(m - m'),  p_j = 2^(s_j - m')
//     l' = f l + sum_j p_j,    o' = f o + sum_j p_j v_j
// (Milakov and Gimelshein 2018; Rabe and Staats 2021; Dao et al. 2022). Scores are kept times
// log2(e), with the factor put into the queries, so that 2^x serves as the exponential. Sums start
// anew in each block, so rounding grows with block_keys + kv_len / block_keys, not with kv_len.
//
// The order. Per work item (a few panels of queries, tile-inl.h): for each block of keys, pack its
// keys and values once into tiles; for each panel: scores = Q K^T -> softcap, biases, masks ->
// softmax -> context. Packed keys and values of a block share the second cache with the panels;
// a panel of queries (the B of the first product) and the weights being read (the B of the second)
// pass through the first. While a block is worked on, the next one's rows are prefetched, a few
// lines per tile: packing straight from memory cost 7 % (N = 4096, D = 128, Zen 4), now 2 to 3 %.
//
// Masks. A row's rule gives a range of keys, for most rules exact. Tiles that no row of the panel's
// vectors sees are not computed, and vectors without a row that sees the tile are left out of it
// (the diagonal of a causal mask narrows from three vectors to one); tiles that all rows see in
// full pay nothing for the mask.
//
// What was tried. Keys along the lanes (6 x 64 tiles, as most kernels have it): 2 to 3 points of the
// ceiling slower, needs a padded head dimension, and horizontal reductions per row. Reading keys in
// place instead of packing: the first product loses 10 % to eight strided streams. A polynomial of
// degree 5 for 2^x: 0.2 points faster, twice the error.
//
// Nan. A hidden key has weight 0, but 0 * nan is nan. So packing looks for values that are not
// finite; such keys are packed as zeros, and afterwards added to the rows that do see them.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/forward.cc"
#include <hwy/foreach_target.h>
// Above stands what is compiled once per target.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include <hwy/highway.h>

#include "kernels/forward.h"
#include "kernels/forward_scratch.h"
#include "kernels/pack-inl.h"
#include "kernels/position_bias.h"
#include "kernels/score-inl.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

constexpr float kLog2E = std::numbers::log2e_v<float>;
/// Keys whose additive bias is loaded together: a line of cache.
constexpr std::int64_t kBiasKeys = 16;
constexpr float kLowest = std::numeric_limits<float>::lowest();

ForwardScratchSizes scratch_sizes(const ForwardSetup& setup) {
  const ScoreOptions& score = setup.options->score;
  return {.panels = setup.most_panels,
          .lanes = kPanelLanes,
          .tile_rows = kTileRows,
          .block_keys = setup.block_keys,
          .head_dim = setup.head_dim,
          .value_dim = setup.value_dim,
          .most_keys = setup.most_keys,
          .bias_keys = score.bias.defined() ? kBiasKeys : 0,
          .rows_of_mask = !setup.options->mask.allows_all(),
          .position_bias = score.alibi.has_value() || score.relative.has_value()};
}

/// Fetches rows that are needed soon into the second cache, a few lines at a time.
template <class T>
class Prefetcher {
 public:
  /// `count` rows from `first` on, of `dim` numbers each, within so many calls of fetch().
  void start(const RowsOf<T>& rows, std::int64_t first, std::int64_t count,
             std::int64_t dim, std::int64_t calls) {
    left_ = 0;
    if (count <= 0) return;
    row_ = reinterpret_cast<const char*>(rows.data + first * rows.stride);
    stride_ = rows.stride * std::int64_t{sizeof(float)};
    lines_ = (dim * std::int64_t{sizeof(float)} + kLine - 1) / kLine;
    line_ = 0;
    left_ = count * lines_;
    per_call_ = (left_ + calls - 1) / calls;
  }
  HWY_INLINE void fetch() {
    for (std::int64_t i = std::min(per_call_, left_); i > 0; --i) {
      __builtin_prefetch(row_ + line_ * kLine, std::is_const_v<T> ? 0 : 1, 2);
      if (++line_ == lines_) {
        line_ = 0;
        row_ += stride_;
      }
    }
    left_ -= std::min(per_call_, left_);
  }

 private:
  static constexpr std::int64_t kLine = 64;
  const char* row_ = nullptr;
  std::int64_t stride_ = 0, lines_ = 0, line_ = 0, left_ = 0, per_call_ = 0;
};

/// One work item: some queries of one head against all the keys they see.
class ItemPass {
 public:
  ItemPass(const ForwardSetup& setup, const ForwardItem& item, const ForwardItem* next,
           std::byte* scratch)
      : setup_(setup), item_(item), head_(item.head), next_(next), score_(setup.options->score), mask_(setup.options->mask) {
    scratch_.lay_out(scratch, scratch_sizes(setup));
  }

  void run(const std::stop_token& stop) {
    for (std::int64_t q = item_.q_begin; q < item_.q_end; q += kPanelLanes) {
      open_panel(scratch_.panels[panels_++], q, std::min(kPanelLanes, item_.q_end - q));
    }
    if (has_position_bias()) {
      first_distance_ = item_.q_begin + head_.origin.offset - (keys_end_ + kTileRows);
      const std::int64_t last =
          item_.q_begin + panels_ * kPanelLanes + head_.origin.offset - keys_begin_;
      fill_position_bias(score_, head_.origin.head, head_.alibi_slope, first_distance_,
                         {scratch_.position_bias,
                          static_cast<std::size_t>(last - first_distance_ + setup_.block_keys)});
    }
    // Blocks lie where they would for any other cut into items, so that results do not depend on it.
    const std::int64_t first = keys_begin_ / setup_.block_keys * setup_.block_keys;
    for (std::int64_t block = first; block < keys_end_; block += setup_.block_keys) {
      if (stop.stop_requested()) return;
      visit_block(block);
    }
    for (std::int64_t p = 0; p < panels_; ++p) {
      if (!scratch_.panels[p].closed) close_panel(scratch_.panels[p]);  // without a visible key
    }
  }

 private:
  bool has_position_bias() const { return score_.alibi.has_value() || score_.relative.has_value(); }
  bool has_stages() const {
    return score_.softcap > 0 || score_.custom.tile != nullptr || score_.bias.defined() ||
           has_position_bias();
  }
  ScorePosition place(std::int64_t query, std::int64_t key) const {
    ScorePosition at = head_.origin;
    at.query = query;
    at.key = key;
    return at;
  }

  // ---- panels -----------------------------------------------------------------------------------

  void open_panel(Panel& panel, std::int64_t first_query, std::int64_t rows) {
    const Floats d;
    panel.first_query = first_query;
    panel.rows = rows;
    panel.vectors = (rows + kLanes - 1) / kLanes;
    panel.loaded = panel.closed = false;
    find_ranges(panel);
    const Vector zero = hn::Zero(d);
    for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
      for (std::int64_t c = 0; c < setup_.value_dim; ++c) {
        hn::Store(zero, d, panel.context + c * kPanelLanes + lane);
      }
      hn::Store(hn::Set(d, kLowest), d, panel.maximum + lane);
      hn::Store(zero, d, panel.sum + lane);
    }
  }

  void find_ranges(Panel& panel) {
    panel.exact = true;
    if (mask_.allows_all()) {
      std::fill(panel.key_begin, panel.key_begin + kPanelLanes, std::int64_t{0});
      std::fill(panel.key_end, panel.key_end + kPanelLanes, head_.kv_len);
      std::fill(panel.ranges, panel.ranges + panel.vectors,
                VectorRange{.begin = 0, .end = head_.kv_len, .all_begin = 0,
                            .all_end = head_.kv_len});
      panel.keys_end = keys_end_ = head_.kv_len;
      return;
    }
    panel.keys_end = 0;
    for (std::int64_t v = 0; v < panel.vectors; ++v) {
      VectorRange& seen = panel.ranges[v];
      seen = {.begin = head_.kv_len, .end = 0, .all_begin = 0, .all_end = head_.kv_len};
      for (std::int64_t lane = v * kLanes; lane < (v + 1) * kLanes; ++lane) {
        // Lanes without a row take after the last one, so as not to narrow what all see.
        const std::int64_t row = std::min(lane, panel.rows - 1);
        const KeyRange range =
            row == lane ? mask_.key_range(place(panel.first_query + row, 0), head_.kv_len)
                        : KeyRange{panel.key_begin[row], panel.key_end[row], true};
        panel.key_begin[lane] = range.begin;
        panel.key_end[lane] = range.end;
        panel.exact = panel.exact && range.exact;
        if (range.begin < range.end) {
          seen.begin = std::min(seen.begin, range.begin);
          seen.end = std::max(seen.end, range.end);
        }
        seen.all_begin = std::max(seen.all_begin, range.begin);
        seen.all_end = std::min(seen.all_end, range.end);
      }
      if (seen.begin >= seen.end) continue;
      panel.keys_end = std::max(panel.keys_end, seen.end);
      keys_begin_ = keys_end_ == 0 ? seen.begin : std::min(keys_begin_, seen.begin);
      keys_end_ = std::max(keys_end_, seen.end);
    }
  }

  void load_queries(Panel& panel) {
    const Floats d;
    // Lanes without a row compute with zeros, and nobody looks at them.
    if (panel.rows % kLanes != 0) {
      for (std::int64_t c = 0; c < setup_.head_dim; ++c) {
        std::fill(panel.queries + c * kPanelLanes + panel.rows,
                  panel.queries + c * kPanelLanes + panel.vectors * kLanes, 0.0f);
      }
    }
    panel.loaded = true;
    transpose(head_.query.data + panel.first_query * head_.query.stride, head_.query.stride,
              panel.rows, setup_.head_dim, panel.queries, kPanelLanes);
    const Vector factor = hn::Set(d, query_factor());
    for (std::int64_t c = 0; c < setup_.head_dim; ++c) {
      for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
        float* at = panel.queries + c * kPanelLanes + lane;
        hn::Store(hn::Mul(factor, hn::Load(d, at)), d, at);
      }
    }
  }

  /// What the queries are multiplied by: all that is linear in the scores before the first stage.
  float query_factor() const {
    if (score_.softcap > 0) return static_cast<float>(setup_.scale / score_.softcap);
    // A custom function sees the score itself.
    const bool custom = score_.custom.tile != nullptr;
    return static_cast<float>(setup_.scale * (custom ? 1.0 : std::numbers::log2e_v<double>));
  }

  void close_panel(Panel& panel) {
    panel.closed = true;
    constexpr double kLn2 = std::numbers::ln2_v<double>;
    const Floats d;
    const bool sink = !score_.sinks.empty();
    const double sink_logit =
        sink ? score_.sinks[static_cast<std::size_t>(head_.origin.head)] : 0.0;
    for (std::int64_t lane = 0; lane < panel.rows; ++lane) {
      double maximum = static_cast<double>(panel.maximum[lane]);
      double sum = static_cast<double>(panel.sum[lane]);
      double shrink = 1.0;
      if (sink && std::isfinite(sink_logit)) {
        // The sink joins as one more score, which has no value.
        const double logit = sink_logit / kLn2;
        const double before = sum == 0.0 ? logit : maximum;
        maximum = std::max(before, logit);
        shrink = std::exp2(before - maximum);
        sum = sum * shrink + std::exp2(logit - maximum);
      }
      // Nothing visible, not even a sink: context 0, lse -inf.
      scratch_.factor[lane] = sum == 0.0 ? 0.0f : static_cast<float>(shrink / sum);
      if (head_.lse.data != nullptr) {
        head_.lse.data[(panel.first_query + lane) * head_.lse.stride] =
            sum == 0.0 ? kMinusInfinity : static_cast<float>(maximum * kLn2 + std::log(sum));
      }
    }
    if (head_.context.data == nullptr) return;
    for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
      const Vector factor = hn::Load(d, scratch_.factor + lane);
      for (std::int64_t c = 0; c < setup_.value_dim; ++c) {
        float* at = panel.context + c * kPanelLanes + lane;
        hn::Store(hn::Mul(factor, hn::Load(d, at)), d, at);
      }
    }
    transpose(panel.context, kPanelLanes, setup_.value_dim, panel.rows,
              head_.context.data + panel.first_query * head_.context.stride, head_.context.stride);
  }

  // ---- blocks of keys ---------------------------------------------------------------------------

  void visit_block(std::int64_t block) {
    const std::int64_t count = std::min(setup_.block_keys, head_.kv_len - block);
    const std::int64_t tiles = (count + kTileRows - 1) / kTileRows;
    bool packed = false;
    for (std::int64_t p = 0; p < panels_; ++p) {
      Panel& panel = scratch_.panels[p];
      if (panel.closed) continue;
      const bool last = block + count >= panel.keys_end;
      const std::int64_t segments = find_segments(panel, block, tiles);
      if (segments > 0) {
        if (!packed) pack_block(block, count, tiles);
        packed = true;
        if (!panel.loaded) load_queries(panel);
        prefetch_around(p, tiles, last);
        attend(panel, block, segments);
      }
      if (last) close_panel(panel);
    }
  }

  /// Queries of the next panel, if they are still to be loaded, or of the next item; and this
  /// panel's rows of the context if they are about to be written.
  void prefetch_around(std::int64_t p, std::int64_t tiles, bool last) {
    const Panel& panel = scratch_.panels[p];
    if (p + 1 < panels_) {
      const Panel& next = scratch_.panels[p + 1];
      next_queries_.start(head_.query, next.first_query, next.loaded ? 0 : next.rows,
                          setup_.head_dim, tiles);
    } else if (last && next_ != nullptr) {
      next_queries_.start(next_->head.query, next_->q_begin,
                          std::min(kPanelLanes, next_->q_end - next_->q_begin), setup_.head_dim,
                          tiles);
    }
    context_rows_.start(head_.context, panel.first_query,
                        last && head_.context.data != nullptr ? panel.rows : 0, setup_.value_dim,
                        value_tiles());
  }
  std::int64_t value_tiles() const {
    return std::max<std::int64_t>(1, (setup_.value_dim + kTileRows - 1) / kTileRows);
  }

  void pack_block(std::int64_t block, std::int64_t count, std::int64_t tiles) {
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t key = block + t * kTileRows;
      pack_key_tile(head_.key.data + key * head_.key.stride, head_.key.stride,
                    std::min<std::int64_t>(kTileRows, head_.kv_len - key), setup_.head_dim,
                    scratch_.keys + t * kTileRows * setup_.head_dim);
    }
    doubtful_ = 0;
    const float* values = head_.value.data + block * head_.value.stride;
    if (!pack_values(values, head_.value.stride, count, tiles * kTileRows, setup_.value_dim,
                     scratch_.values, scratch_.value_tile_stride)) {
      set_doubtful_keys_aside(values, count);
    }
    prefetch_next_block(block + count, tiles);
  }

  /// Keys and values of the next block, or of the first one of what comes next.
  void prefetch_next_block(std::int64_t next, std::int64_t tiles) {
    const bool ours = next < keys_end_;
    if (!ours && next_ == nullptr) return;
    const ForwardHead& head = ours ? head_ : next_->head;
    const std::int64_t first = ours ? next : 0;
    const std::int64_t rows =
        std::min(setup_.block_keys, (ours ? keys_end_ : head.kv_len) - first);
    next_keys_.start(head.key, first, rows, setup_.head_dim, panels_ * tiles);
    next_values_.start(head.value, first, rows, setup_.value_dim, panels_ * value_tiles());
  }

  /// Lists the keys of the block whose values are not all finite and packs them as zeros.
  void set_doubtful_keys_aside(const float* values, std::int64_t count) {
    for (std::int64_t k = 0; k < count; ++k) {
      const float* value = values + k * head_.value.stride;
      const bool finite = std::all_of(value, value + setup_.value_dim,
                                      [](float x) { return std::isfinite(x); });
      if (finite) continue;
      scratch_.doubtful[doubtful_++] = static_cast<std::int32_t>(k);
      for (std::int64_t c = 0; c < setup_.value_dim; c += kTileRows) {
        const std::int64_t width = std::min<std::int64_t>(kTileRows, setup_.value_dim - c);
        float* row = scratch_.values + c / kTileRows * scratch_.value_tile_stride + k * width;
        std::fill(row, row + width, 0.0f);
      }
    }
  }

  /// Splits the tiles of a block into segments that are seen by the same vectors of the panel, and
  /// notes which tiles need the mask. Returns the number of segments; 0 when nothing is visible.
  std::int64_t find_segments(const Panel& panel, std::int64_t block, std::int64_t tiles) {
    const std::int64_t tiles_end = block + tiles * kTileRows;
    const std::int64_t block_end = std::min(tiles_end, head_.kv_len);
    bool any = false;
    bool all = true;
    for (std::int64_t v = 0; v < panel.vectors; ++v) {
      const VectorRange& seen = panel.ranges[v];
      any = any || (seen.begin < block_end && seen.end > block);
      all = all && seen.all_begin <= block && seen.all_end >= tiles_end;
    }
    if (!any) return 0;
    bool ranges_tell = panel.exact;
    if (!panel.exact) {
      const Visibility visibility =
          mask_.classify({place(panel.first_query, block), panel.rows, block_end - block});
      if (visibility == Visibility::kNone) return 0;
      ranges_tell = visibility == Visibility::kAll;
    }
    if (all && ranges_tell) {
      std::fill(scratch_.masked, scratch_.masked + tiles, std::uint8_t{0});
      scratch_.segments[0] = {0, tiles * kTileRows, 0, panel.vectors, false};
      return 1;
    }

    std::int64_t segments = 0;
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t from = block + t * kTileRows;
      const std::int64_t to = from + kTileRows;
      std::int64_t first = panel.vectors;
      std::int64_t last = -1;
      for (std::int64_t v = 0; v < panel.vectors; ++v) {
        if (panel.ranges[v].begin >= to || panel.ranges[v].end <= from) continue;
        first = std::min(first, v);
        last = v;
      }
      if (last < 0) continue;
      bool masked = !ranges_tell;
      for (std::int64_t v = first; v <= last; ++v) {
        masked = masked || panel.ranges[v].all_begin > from || panel.ranges[v].all_end < to;
      }
      scratch_.masked[t] = masked;
      Segment* previous = segments == 0 ? nullptr : &scratch_.segments[segments - 1];
      if (previous != nullptr && previous->first_vector == first &&
          previous->vectors == last - first + 1 &&
          previous->first_key + previous->keys == t * kTileRows) {
        previous->keys += kTileRows;
        previous->masked = previous->masked || masked;
      } else {
        scratch_.segments[segments++] = {t * kTileRows, kTileRows, first, last - first + 1, masked};
      }
    }
    return segments;
  }

  // ---- one panel and one block ------------------------------------------------------------------

  void attend(const Panel& panel, std::int64_t block, std::int64_t segments) {
    const Floats d;
    for (std::int64_t lane = 0; lane < kPanelLanes; lane += kLanes) {
      hn::Store(hn::Set(d, kLowest), d, scratch_.block_maximum + lane);
      hn::Store(hn::Zero(d), d, scratch_.block_sum + lane);
    }
    for (std::int64_t s = 0; s < segments; ++s) {
      const Segment& segment = scratch_.segments[s];
      if (segment.masked) prepare_mask(panel, block, segment);
      with_vectors(segment.vectors, [&](auto vectors) {
        compute_scores<decltype(vectors)::value>(panel, block, segment);
      });
      if (doubtful_ > 0) note_who_sees_doubtful_keys(segment);
    }
    raise_panel_maximum(panel);
    for (std::int64_t s = 0; s < segments; ++s) {
      const Segment& segment = scratch_.segments[s];
      with_vectors(segment.vectors, [&](auto vectors) {
        compute_weights<decltype(vectors)::value>(panel, segment);
      });
    }
    add_block_sum(panel);
    if (head_.context.data == nullptr) return;
    for (std::int64_t s = 0; s < segments; ++s) {
      const Segment& segment = scratch_.segments[s];
      with_vectors(segment.vectors, [&](auto vectors) {
        add_values<decltype(vectors)::value>(panel, segment);
      });
      if (doubtful_ > 0) add_doubtful_values(panel, block, segment);
    }
  }

  /// Calls `act` with the number of vectors as a constant.
  template <class Act>
  static HWY_INLINE void with_vectors(std::int64_t vectors, const Act& act) {
    switch (vectors) {
      case 1:
        return act(std::integral_constant<int, 1>());
      case 2:
        return act(std::integral_constant<int, kPanelVectors >= 2 ? 2 : 1>());
      default:
        return act(std::integral_constant<int, kPanelVectors >= 3 ? 3 : kPanelVectors>());
    }
  }

  template <int kVectors>
  HWY_INLINE void compute_scores(const Panel& panel, std::int64_t block, const Segment& segment) {
    const std::int64_t lane = segment.first_vector * kLanes;
    const bool stages = has_stages();
    for (std::int64_t k = segment.first_key; k < segment.first_key + segment.keys; k += kTileRows) {
      float* scores = scratch_.scores + k * kPanelLanes + lane;
      const bool masked = scratch_.masked[k / kTileRows] != 0;
      next_keys_.fetch();
      next_queries_.fetch();
      // Where more is to come, the maximum is found afterwards.
      tile<kTileRows, kVectors, Finish::kMaximum>(
          scratch_.keys + k * setup_.head_dim, panel.queries + lane, setup_.head_dim, scores,
          (stages || masked ? scratch_.ignored_maximum : scratch_.block_maximum) + lane);
      if (!stages && !masked) continue;
      if (stages) run_stages(panel, block, k, lane, kVectors * kLanes);
      if (masked) mask_tile(panel, k, lane, kVectors * kLanes);
      raise_maximum(scores, kVectors * kLanes, scratch_.block_maximum + lane);
    }
  }

  /// All that comes after the product, in order, for the tile whose first key is block + key.
  void run_stages(const Panel& panel, std::int64_t block, std::int64_t key, std::int64_t lane,
                  std::int64_t lanes) {
    float* scores = scratch_.scores + key * kPanelLanes + lane;
    const bool custom = score_.custom.tile != nullptr;
    if (score_.softcap > 0) {
      softcap_tile(scores, lanes, static_cast<float>(score_.softcap) * (custom ? 1.0f : kLog2E));
    }
    if (custom) {
      score_.custom.tile(score_.custom.state.get(),
                         {.scores = scores,
                          .stride = kPanelLanes,
                          .keys = kTileRows,
                          .lanes = lanes,
                          .first = place(panel.first_query + lane, block + key),
                          .factor = kLog2E});
    }
    if (has_position_bias()) {
      const std::int64_t distance =
          panel.first_query + lane + head_.origin.offset - (block + key) - first_distance_;
      add_position_bias(scores, lanes, scratch_.position_bias + distance);
    }
    if (score_.bias.defined()) {
      load_bias(panel, block + key, lane, lanes);
      add_bias_tile(scores, lanes, scratch_.bias_tile + key % kBiasKeys * kPanelLanes, kLog2E);
    }
  }

  /// What mask_tile needs to know of a segment's rows.
  void prepare_mask(const Panel& panel, std::int64_t block, const Segment& segment) {
    if (!panel.exact) return fill_visible(panel, block, segment);
    const auto within = [&](std::int64_t key) {
      return static_cast<std::int32_t>(std::clamp<std::int64_t>(key - block, 0, setup_.block_keys));
    };
    const std::int64_t lane = segment.first_vector * kLanes;
    for (std::int64_t i = lane; i < lane + segment.vectors * kLanes; ++i) {
      scratch_.key_begin[i] = within(panel.key_begin[i]);
      scratch_.key_end[i] = within(panel.key_end[i]);
    }
  }

  void mask_tile(const Panel& panel, std::int64_t key, std::int64_t lane, std::int64_t lanes) {
    float* scores = scratch_.scores + key * kPanelLanes + lane;
    if (panel.exact) {
      mask_tile_by_range(scores, lanes, static_cast<std::int32_t>(key), scratch_.key_begin + lane,
                         scratch_.key_end + lane);
    } else {
      mask_tile_by_rows(scores, lanes, scratch_.visible + lane * setup_.block_keys + key,
                        setup_.block_keys, scratch_.mask_rows, scratch_.mask_tile);
    }
  }

  void fill_visible(const Panel& panel, std::int64_t block, const Segment& segment) {
    const std::int64_t key = block + segment.first_key;
    const std::int64_t keys = std::min(segment.keys, head_.kv_len - key);
    const std::int64_t lane = segment.first_vector * kLanes;
    for (std::int64_t i = lane; i < lane + segment.vectors * kLanes; ++i) {
      std::uint8_t* row = scratch_.visible + i * setup_.block_keys + segment.first_key;
      if (i < panel.rows) {
        mask_.fill(place(panel.first_query + i, key), keys, row);
        std::fill(row + keys, row + segment.keys, std::uint8_t{0});
      } else {
        std::fill(row, row + segment.keys, std::uint8_t{0});
      }
    }
  }

  /// bias_tile[key % kBiasKeys][lane] = the additive bias for the kBiasKeys keys around `key`, a
  /// line of cache in each row, unless it is there already. What lies beyond the last row or key
  /// repeats it.
  void load_bias(const Panel& panel, std::int64_t key, std::int64_t lane, std::int64_t lanes) {
    key = key / kBiasKeys * kBiasKeys;
    const std::int64_t query = panel.first_query + lane;
    if (bias_key_ == key && bias_query_ == query && bias_lanes_ == lanes) return;
    bias_key_ = key;
    bias_query_ = query;
    bias_lanes_ = lanes;

    const TensorView& bias = score_.bias;
    const std::int64_t rows = std::min(lanes, panel.rows - lane);
    const std::int64_t keys = std::min(kBiasKeys, head_.kv_len - key);
    const std::int64_t query_stride = head_.bias_query_stride;
    const std::int64_t key_stride = head_.bias_key_stride;
    const std::int64_t offset = head_.bias_offset + query * query_stride + key * key_stride;
    if (bias.dtype() == DType::kFloat32 && key_stride == 1 && query_stride != 0 &&
        keys == kBiasKeys) {
      const float* from = static_cast<const float*>(bias.data()) + offset;
      transpose(from, query_stride, rows, kBiasKeys, scratch_.bias_tile, kPanelLanes);
      for (std::int64_t i = 0; i < rows; ++i) {
        __builtin_prefetch(from + i * query_stride + 2 * kBiasKeys, 0, 2);
      }
      return;
    }
    for (std::int64_t k = 0; k < kBiasKeys; ++k) {
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t at = offset + i * query_stride + std::min(k, keys - 1) * key_stride;
        scratch_.bias_tile[k * kPanelLanes + i] =
            bias.dtype() == DType::kFloat32
                ? static_cast<const float*>(bias.data())[at]
                : static_cast<float>(static_cast<const double*>(bias.data())[at]);
      }
    }
  }

  /// maximum = max(maximum, block's); factor = 2^(old - new); the sum shrinks by it.
  void raise_panel_maximum(const Panel& panel) {
    const Floats d;
    for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
      const Vector before = hn::Load(d, panel.maximum + lane);
      const Vector after = hn::Max(before, hn::Load(d, scratch_.block_maximum + lane));
      const Vector factor = fovea::HWY_NAMESPACE::exp2_of_nonpositive(d, hn::Sub(before, after));
      hn::Store(after, d, panel.maximum + lane);
      hn::Store(factor, d, scratch_.factor + lane);
      hn::Store(hn::Mul(factor, hn::Load(d, panel.sum + lane)), d, panel.sum + lane);
    }
  }

  /// weights = 2^(scores - maximum), in place, and their sum.
  template <int kVectors>
  HWY_INLINE void compute_weights(const Panel& panel, const Segment& segment) {
    const Floats d;
    const std::int64_t lane = segment.first_vector * kLanes;
    Vector maximum[kVectors], sum[kVectors];
    HWY_UNROLL(3)
    for (int v = 0; v < kVectors; ++v) {
      maximum[v] = hn::Load(d, panel.maximum + lane + v * kLanes);
      sum[v] = hn::Load(d, scratch_.block_sum + lane + v * kLanes);
    }
    float* HWY_RESTRICT scores = scratch_.scores + segment.first_key * kPanelLanes + lane;
    // A segment is whole tiles, of an even number of keys: two at a time keep more in flight.
    for (std::int64_t k = 0; k < segment.keys; k += 2) {
      HWY_UNROLL(2)
      for (int i = 0; i < 2; ++i) {
        HWY_UNROLL(3)
        for (int v = 0; v < kVectors; ++v) {
          float* at = scores + i * kPanelLanes + v * kLanes;
          const Vector weight = fovea::HWY_NAMESPACE::exp2_of_nonpositive(d, hn::Sub(hn::Load(d, at), maximum[v]));
          hn::Store(weight, d, at);
          sum[v] = hn::Add(sum[v], weight);
        }
      }
      scores += 2 * kPanelLanes;
    }
    HWY_UNROLL(3)
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sum[v], d, scratch_.block_sum + lane + v * kLanes);
    }
  }

  void add_block_sum(const Panel& panel) {
    const Floats d;
    for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
      hn::Store(
          hn::Add(hn::Load(d, panel.sum + lane), hn::Load(d, scratch_.block_sum + lane)), d,
          panel.sum + lane);
    }
  }

  template <int kVectors>
  HWY_INLINE void add_values(const Panel& panel, const Segment& segment) {
    const Floats d;
    const std::int64_t lane = segment.first_vector * kLanes;
    const float* weights = scratch_.scores + segment.first_key * kPanelLanes + lane;
    for (std::int64_t c = 0; c < setup_.value_dim; c += kTileRows) {
      const std::int64_t width = std::min<std::int64_t>(kTileRows, setup_.value_dim - c);
      const float* values = scratch_.values + c / kTileRows * scratch_.value_tile_stride;
      next_values_.fetch();
      context_rows_.fetch();
      tile_of<kVectors, Finish::kAccumulate>(width, values + segment.first_key * width, weights,
                                             segment.keys, panel.context + c * kPanelLanes + lane,
                                             scratch_.factor + lane);
    }
    // What was there before the block has now shrunk, once.
    for (std::int64_t v = 0; v < kVectors; ++v) {
      hn::Store(hn::Set(d, 1.0f), d, scratch_.factor + lane + v * kLanes);
    }
  }

  // ---- values that are not finite ---------------------------------------------------------------

  /// Which lanes see a doubtful key, while the scores still tell: those not hidden by -inf.
  void note_who_sees_doubtful_keys(const Segment& segment) {
    const std::int64_t lane = segment.first_vector * kLanes;
    for (std::int32_t i = 0; i < doubtful_; ++i) {
      const std::int32_t key = scratch_.doubtful[i];
      if (key < segment.first_key || key >= segment.first_key + segment.keys) continue;
      const float* scores = scratch_.scores + key * kPanelLanes;
      float* visible = scratch_.doubtful_visible + i * kPanelLanes;
      for (std::int64_t at = lane; at < lane + segment.vectors * kLanes; ++at) {
        visible[at] = scores[at] == kMinusInfinity ? 0.0f : 1.0f;
      }
    }
  }

  void add_doubtful_values(const Panel& panel, std::int64_t block, const Segment& segment) {
    const std::int64_t lane = segment.first_vector * kLanes;
    for (std::int32_t i = 0; i < doubtful_; ++i) {
      const std::int32_t key = scratch_.doubtful[i];
      if (key < segment.first_key || key >= segment.first_key + segment.keys) continue;
      const float* value = head_.value.data + (block + key) * head_.value.stride;
      for (std::int64_t at = lane; at < lane + segment.vectors * kLanes; ++at) {
        if (scratch_.doubtful_visible[i * kPanelLanes + at] == 0.0f) continue;
        const float weight = scratch_.scores[key * kPanelLanes + at];
        for (std::int64_t c = 0; c < setup_.value_dim; ++c) {
          panel.context[c * kPanelLanes + at] += weight * value[c];
        }
      }
    }
  }

  const ForwardSetup& setup_;
  const ForwardItem& item_;
  const ForwardHead& head_;
  const ForwardItem* next_;
  const ScoreOptions& score_;
  const Mask& mask_;
  ForwardScratch scratch_;
  std::int64_t panels_ = 0;
  std::int64_t keys_begin_ = 0;  // all keys that the item's rows see lie from here
  std::int64_t keys_end_ = 0;    // to here
  std::int64_t first_distance_ = 0;  // of the table of position biases
  // What load_bias() last loaded.
  std::int64_t bias_key_ = -1, bias_query_ = -1, bias_lanes_ = -1;
  std::int32_t doubtful_ = 0;        // keys of the block whose values are not finite
  Prefetcher<const float> next_keys_, next_values_, next_queries_;
  Prefetcher<float> context_rows_;
};

std::int64_t PanelLanes() { return kPanelLanes; }

std::size_t ScratchBytes(const ForwardSetup& setup) {
  return ForwardScratch().lay_out(nullptr, scratch_sizes(setup));
}

void RunItem(const ForwardSetup& setup, const ForwardItem& item, const ForwardItem* next,
             std::byte* scratch, const std::stop_token& stop) {
  ItemPass(setup, item, next, scratch).run(stop);
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::kernels {

HWY_EXPORT(PanelLanes);
HWY_EXPORT(ScratchBytes);
HWY_EXPORT(RunItem);

std::int64_t panel_lanes() { return HWY_DYNAMIC_DISPATCH(PanelLanes)(); }

std::size_t forward_scratch_bytes(const ForwardSetup& setup) {
  return HWY_DYNAMIC_DISPATCH(ScratchBytes)(setup);
}

void forward_item(const ForwardSetup& setup, const ForwardItem& item, const ForwardItem* next,
                  std::byte* scratch, const std::stop_token& stop) {
  HWY_DYNAMIC_DISPATCH(RunItem)(setup, item, next, scratch, stop);
}

}  // namespace fovea::kernels
#endif
