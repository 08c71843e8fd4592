// SPDX-License-Identifier: Apache-2.0
//
// The products with a block of keys and values that are read in place, for few queries: packing
// them into tiles (key_block-inl.h) would take longer than the products. Elements of keys are
// broadcast one at a time, as packed keys are, or four at a time (quads-inl.h). In both cases
// scores have one query per lane. Values and contexts have dimensions along the lanes, so contexts
// are written without a transpose. Rows that are not float32, and values whose last vector is
// not full, are first copied to the scratch memory.
//
// NaN. Looking for non-finite values takes as long as a product with one row. The values are
// multiplied as they are instead: 0 * NaN is NaN, so a non-finite value shows in the contexts.
// If one of these is not finite, the item is computed again with the doubtful keys apart.

#if defined(FOVEA_KERNELS_TILE_KEY_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_KEY_ROWS_INL_H_
#undef FOVEA_KERNELS_TILE_KEY_ROWS_INL_H_
#else
#define FOVEA_KERNELS_TILE_KEY_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/simd/simd-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/tile/doubtful_keys-inl.h"
#include "kernels/tile/float_arithmetic-inl.h"
#include "kernels/tile/pack-inl.h"
#include "kernels/tile/panel-inl.h"
#include "kernels/tile/quads-inl.h"
#include "kernels/tile/row_tile-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

constexpr std::int64_t whole_vectors(std::int64_t count) {
  return (count + kLanes - 1) / kLanes * kLanes;
}

/// As tile() with Finish::kMaximum, where row i of A is read at a + i * stride. Rows from `rows` on
/// repeat the last one. Prefetches the rows that are `ahead` floats after those of A.
template <int kVectors>
HWY_INLINE void tile_of_rows(const float* a, std::int64_t stride, std::int64_t ahead,
                             std::int64_t rows, const float* HWY_RESTRICT b, std::int64_t steps,
                             float* HWY_RESTRICT c, float* HWY_RESTRICT maximum) {
  const Floats d;
  const float* row[kTileRows];
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) row[i] = a + std::min<std::int64_t>(i, rows - 1) * stride;
  Vector sum[kTileRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Zero(d);
  }
  RowLines next(a, ahead, stride, steps);
  for (std::int64_t step = 0; step < steps;) {
    next.fetch<kTileRows>();
    for (const std::int64_t end = std::min(step + RowLines::kFloats, steps); step < end; ++step) {
      Vector lanes[kVectors];
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) lanes[v] = hn::Load(d, b + v * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kTileRows; ++i) {
        const Vector x = hn::Set(d, row[i][step]);
#pragma GCC unroll 3
        for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(x, lanes[v], sum[i][v]);
      }
      b += kPanelLanes;
    }
  }
#pragma GCC unroll 3
  for (int v = 0; v < kVectors; ++v) {
    Vector most = hn::Load(d, maximum + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) {
      most = hn::Max(most, sum[i][v]);
      hn::Store(sum[i][v], d, c + i * kPanelLanes + v * kLanes);
    }
    hn::Store(most, d, maximum + v * kLanes);
  }
}

/// Multiplies the sums of tiles by a factor of their row and writes them. `to` need not be aligned.
struct WriteScaled {
  static constexpr bool kAdds = false;
  float* to;
  std::int64_t stride;
  const float* factor;
  Vector doubt;  // is not 0 after a product that is not finite

  template <int kRows, int kVectors>
  HWY_INLINE void take(const Vector (&sums)[kRows][kVectors], std::int64_t row, std::int64_t lane) {
    const Floats d;
    Vector doubts[kVectors];  // independent sums hide the latency of additions
#pragma GCC unroll 4
    for (Vector& one : doubts) one = hn::Zero(d);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const Vector f = hn::Set(d, factor[row + i]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const Vector x = hn::Mul(f, sums[i][v]);
        hn::StoreU(x, d, to + (row + i) * stride + lane + v * kLanes);
        doubts[v] = hn::MulAdd(x, hn::Zero(d), doubts[v]);  // x * 0 is 0 if x is finite, else NaN
      }
    }
#pragma GCC unroll 4
    for (const Vector& one : doubts) doubt = hn::Add(doubt, one);
  }
};

/// Passes tiles on to `sums`. Before each step, prefetches the elements that are `ahead` floats
/// after those of the step, unless `ahead` is 0.
template <class Sums>
struct PrefetchAhead {
  Sums& sums;
  std::int64_t ahead;

  template <int kVectors>
  HWY_INLINE void before_step(const float* b) const {
    if (ahead == 0) return;
#pragma GCC unroll 4
    for (int i = 0; i < kVectors * kLanes; i += RowLines::kFloats) {
      __builtin_prefetch(b + ahead + i, 0, 2);
    }
  }
  template <int kRows, int kVectors>
  HWY_INLINE void take(const Vector (&tile)[kRows][kVectors], std::int64_t row, std::int64_t lane) {
    sums.take(tile, row, lane);
  }
};

class KeyRows {
 public:
  using Arithmetic = FloatArithmetic;

  KeyRows(const ForwardSetup& setup, const ForwardHead& head, ForwardScratch& scratch)
      : setup_(setup),
        head_(head),
        scratch_(scratch),
        doubtful_(setup, head, scratch),
        width_(whole_vectors(setup.value_dim)),
        direct_(head.context.dtype == DType::kFloat32 && setup.value_dim == width_ &&
                head.context_is_even()) {}

  static ForwardScratchSizes scratch_sizes(const ForwardSetup& setup) {
    ForwardScratchSizes sizes = HWY_NAMESPACE::scratch_sizes<Arithmetic>(setup);
    sizes.query_steps = whole_vectors(setup.head_dim);  // in quads, at least whole quads
    sizes.value_dim = whole_vectors(setup.value_dim);
    sizes.value_tiles = tiles_of(sizes.value_dim);
    return sizes;
  }

  static constexpr bool kHasPipeline = false;
  static constexpr bool kMayRefuse = false;
  static constexpr bool kMayAdd = false;
  static constexpr bool kMayWriteProduct = true;
  /// Whether the products may prefetch the next keys and values.
  static constexpr bool kPrefetches = true;
  /// Returns the exponent that weights are relative to: weights are 2^(factor * score - reference).
  static double reference(float maximum, float factor) {
    return static_cast<double>(maximum) * static_cast<double>(factor);
  }
  std::int64_t keys_together() const { return setup_.block_keys; }

  /// Sets the head whose keys and values are prefetched after those of this one.
  void set_next(const ForwardHead& next) { next_ = &next; }
  /// Computes keys with non-finite values apart from the others.
  void set_doubtful_apart() { doubtful_apart_ = true; }
  /// Returns whether all contexts that have been written are finite.
  bool contexts_are_finite() const { return contexts_are_finite_; }

  bool enter(std::int64_t block, std::int64_t count) {
    if (block == block_) return false;
    open(block, count);
    return true;
  }

  void load_queries(const Panel& panel, float factor) const {
    if constexpr (kMayUseQuads) {
      if (in_quads(panel)) return load_quads(panel, factor);
    }
    HWY_NAMESPACE::load_queries<Arithmetic>(head_, panel, setup_.head_dim, factor, panel.queries);
  }

  /// Raises the maximum for any `Finish`.
  template <int kVectors, Finish = Finish::kMaximum>
  HWY_INLINE void scores(const Panel& panel, std::int64_t key, std::int64_t lane, float* scores,
                         float* maximum) const {
    const float* const keys = keys_.row(key);
    if constexpr (kMayUseQuads) {
      if (in_quads(panel)) {
        for (std::int64_t v = 0; v < kVectors; ++v) {
          const std::int64_t first = lane + v * kLanes;
          tile_of_few(std::min(panel.rows - first, kLanes), keys, keys_.stride,
                      v == 0 ? keys_.ahead : 0, count_ - key,
                      panel.queries + first / kLanes * quad_floats(setup_.head_dim),
                      setup_.head_dim, scores + v * kLanes, maximum + v * kLanes);
        }
        return;
      }
    }
    tile_of_rows<kVectors>(keys, keys_.stride, keys_.ahead, count_ - key, panel.queries + lane,
                           setup_.head_dim, scores, maximum);
  }
  void note_who_sees_doubtful(const Segment& segment) { doubtful_.note_who_sees(segment); }

  // ---- contexts: [kPanelLanes][width_]
  // ------------------------------------------------------------

  void begin_context(Panel& panel) const {
    if (!panel.begun) std::fill_n(panel.context, panel.vectors * kLanes * width_, 0.0f);
    panel.begun = true;
  }

  template <int kVectors, class Fetch>
  HWY_INLINE void add_values(const Panel& panel, const Segment& segment, const Fetch& fetch) {
    const std::int64_t lane = segment.first_vector * kLanes;
    const std::int64_t end = std::min(lane + segment.vectors * kLanes, panel.rows);
    rescale(panel, lane, end);
    const AddSums sums{panel.context, width_};
    multiply_values(panel, lane, end, segment.first_key, segment.first_key + segment.keys, sums,
                    fetch);
  }
  /// Returns the maximum number of fetch() calls of the product of `rows` rows of weights and the
  /// values of `keys` keys.
  static std::int64_t value_fetches(std::int64_t rows, std::int64_t keys) {
    return (rows + kRowsTogether - 1) / kRowsTogether *
           ((keys + kKeysTogether - 1) / kKeysTogether);
  }
  bool prefetches_keys() const { return keys_.ahead != 0; }
  bool prefetches_values() const { return values_.ahead != 0; }
  void add_doubtful(const Panel& panel, const Segment& segment) {
    doubtful_.add(segment, [&](std::int64_t key, std::int64_t lane, std::int64_t c, float value) {
      panel.context[lane * width_ + c] += Arithmetic::weight(scratch_.weights, key, lane) * value;
    });
  }

  void write_context(const Panel& panel) {
    Vector doubt = hn::Zero(Floats());
    for (std::int64_t row = 0; row < panel.rows; ++row) {
      float* const context = panel.context + row * width_;
      float* const to = direct_ ? head_.context.row_as<float>(panel.first_query + row) : context;
      scale_row(context, scratch_.factor[row], to, &doubt);
    }
    if (!direct_) write_rows(panel);
    note_doubt(doubt);
  }

  /// Returns whether write_product() computes the contexts. Call it in the last block of a panel:
  /// true if that block is the only one and has few keys.
  bool may_write_product(const Panel& panel) const {
    return !panel.begun && count_ <= kKeysTogether;
  }
  /// Multiplies the weights of the panel's only block with the values, and writes the contexts
  /// without an intermediate copy of the sums where possible. `ranges` are ScoreStages::ranges().
  template <class Fetch>
  void write_product(const Panel& panel, const VectorRange* ranges, std::int64_t segments,
                     const Fetch& fetch) {
    const bool direct = direct_ && panel.rows % kRowsMultiple == 0 && !doubtful_.any();
    WriteScaled sums{panel.context, width_, scratch_.factor, hn::Zero(Floats())};
    if (direct) {
      sums.to = head_.context.row_as<float>(panel.first_query);
      sums.stride = head_.context.stride;
    }
    // Weights have been computed for whole tiles, and not outside the segments.
    const Segment& last = scratch_.segments[segments - 1];
    const std::int64_t first_key = scratch_.segments[0].first_key;
    const std::int64_t end_key = last.first_key + last.keys;
    std::int64_t next = 0;
    for (std::int64_t v = 0; v < panel.vectors; v = next) {
      const VectorRange& seen = ranges[v];
      const auto same = [&](const VectorRange& other) {
        return other.begin == seen.begin && other.end == seen.end;
      };
      for (next = v + 1; next < panel.vectors && same(ranges[next]);) ++next;
      const std::int64_t begin =
          std::clamp<std::int64_t>(seen.begin - block_, first_key, count_ - 1);
      multiply_values(panel, v * kLanes, std::min(next * kLanes, panel.rows),
                      begin / kTileRows * kTileRows, std::min(seen.end - block_, end_key), sums,
                      fetch);
    }
    note_doubt(sums.doubt);
    if (direct) return;
    for (std::int64_t s = 0; s < segments; ++s) {
      doubtful_.add(scratch_.segments[s],
                    [&](std::int64_t key, std::int64_t lane, std::int64_t c, float value) {
                      const float weight = Arithmetic::weight(scratch_.weights, key, lane);
                      panel.context[lane * width_ + c] += scratch_.factor[lane] * weight * value;
                    });
    }
    write_rows(panel);
  }

 private:
  struct Rows {
    const float* data = nullptr;
    std::int64_t stride = 0;
    std::int64_t ahead = 0;  // the distance in floats to the row that is prefetched; 0 for none
    const float* row(std::int64_t number) const { return data + number * stride; }
  };

  bool in_quads(const Panel& panel) const {
    return panel.rows <= max_queries_in_quads(setup_.head_dim);
  }
  void load_quads(const Panel& panel, float factor) const {
    clear_quads(panel.rows, setup_.head_dim, panel.queries);
    const std::int64_t first = panel.first_query;
    head_.for_each_head(first, first + panel.rows, [&](std::int64_t row, std::int64_t count) {
      const InputRows rows = head_.query_rows(row);
      with_element_type(rows.dtype, [&](auto* type) {
        using T = std::remove_cvref_t<decltype(*type)>;
        store_quads(ScaledNumbers<T>{{rows.row_as<T>(head_.query_of(row))}, factor}, rows.stride,
                    row - first, count, setup_.head_dim, panel.queries);
      });
    });
  }

  void open(std::int64_t block, std::int64_t count) {
    block_ = block;
    count_ = count;
    doubtful_.open(block);
    keys_ = rows_of(&ForwardHead::key, setup_.head_dim, setup_.head_dim, scratch_.keys);
    values_ = rows_of(&ForwardHead::value, setup_.value_dim, width_, scratch_.values);
    if (!doubtful_apart_) return;
    values_ = {scratch_.values, width_};
    if (Arithmetic::pack_rows(head_.value, block, count, count, setup_.value_dim, scratch_.values,
                              width_)) {
      return;
    }
    doubtful_.find(count,
                   [&](std::int64_t key) { Arithmetic::clear_row(scratch_.values, key, width_); });
  }

  /// Returns the rows of the block as they are, if they are float32 and `least` numbers long, and a
  /// copy in `to` otherwise, whose rows are padded with zeros.
  Rows rows_of(InputRows ForwardHead::*which, std::int64_t dim, std::int64_t least,
               float* to) const {
    const InputRows& rows = head_.*which;
    if (rows.dtype == DType::kFloat32 && dim == least) {
      return {rows.row_as<float>(block_), rows.stride, ahead(which)};
    }
    const std::int64_t width = whole_vectors(dim);
    Arithmetic::copy_rows(rows, block_, count_, dim, to, width);
    return {to, width};
  }
  /// Returns Rows::ahead for rows that are read in place. Short heads prefetch the same row of the
  /// next head. Other heads prefetch the row that is kKeysTogether keys later.
  std::int64_t ahead(InputRows ForwardHead::*which) const {
    if (!setup_.prefetches) return 0;
    const InputRows& rows = head_.*which;
    if (head_.kv_len > kKeysTogether) return kKeysTogether * rows.stride;
    return next_ == nullptr ? 0 : (next_->*which).row_as<float>(0) - rows.row_as<float>(0);
  }

  /// Multiplies the weights of some rows and keys with the values, and passes the sums to `sums`.
  template <class Sums, class Fetch>
  HWY_INLINE void multiply_values(const Panel& panel, std::int64_t first_row, std::int64_t rows_end,
                                  std::int64_t first_key, std::int64_t keys_end, Sums& sums,
                                  const Fetch& fetch) {
    keys_end = std::min(keys_end, count_);
    std::int64_t key = first_key;
    do {
      // Groups begin at the same keys wherever the first key is, so that sums have the same bits.
      const std::int64_t next = (key / kKeysTogether + 1) * kKeysTogether;
      const std::int64_t last = std::min(next, keys_end);
      for (std::int64_t row = first_row; row < rows_end; row += kRowsTogether) {
        const std::int64_t rows = std::min(kRowsTogether, rows_end - row);
        // Under a causal mask, the first rows do not see the last keys.
        const std::int64_t* const ends = panel.key_end + row;
        const std::int64_t seen = std::min(last, *std::max_element(ends, ends + rows) - block_);
        if (Sums::kAdds && seen <= key) continue;
        fetch();
        // Only the first rows prefetch, because all rows use the same values.
        PrefetchAhead<Sums> taken{sums, row == first_row ? values_.ahead : 0};
        row_products<Arithmetic, Layout<1, kPanelLanes>>(
            row, row + (rows + kRowsMultiple - 1) / kRowsMultiple * kRowsMultiple, width_,
            scratch_.weights + key * kPanelLanes, values_.row(key), values_.stride,
            std::max<std::int64_t>(seen - key, 0), taken);
      }
      key = next;
    } while (key < keys_end);
  }

  /// Rows of weights that are multiplied with values at a time: a multiple of the rows of a tile.
  static constexpr std::int64_t kRowsTogether = 12;
  /// Keys whose values fit in the L1 cache.
  static constexpr std::int64_t kKeysTogether = 96;

  /// Multiplies contexts by scratch.factor.
  void rescale(const Panel& panel, std::int64_t row, std::int64_t end) const {
    for (; row < end; ++row) {
      float* const context = panel.context + row * width_;
      if (scratch_.factor[row] != 1.0f) scale_row(context, scratch_.factor[row], context);
    }
  }

  /// Writes contexts that have been divided by their sums.
  void write_rows(const Panel& panel) const {
    with_element_type(head_.context.dtype, [&](auto* type) {
      using T = std::remove_cvref_t<decltype(*type)>;
      for (std::int64_t row = 0; row < panel.rows; ++row) {
        write_numbers(panel.context + row * width_, setup_.value_dim,
                      head_.context_row<T>(panel.first_query + row));
      }
    });
  }

  /// Multiplies a row by a factor. Adds NaN to `doubt`, unless it is null, for each product that is
  /// not finite.
  HWY_INLINE void scale_row(const float* context, float factor, float* to,
                            Vector* doubt = nullptr) const {
    const Floats d;
    const Vector f = hn::Set(d, factor);
    for (std::int64_t c = 0; c < width_; c += kLanes) {
      const Vector x = hn::Mul(f, hn::Load(d, context + c));
      hn::StoreU(x, d, to + c);
      if (doubt != nullptr) *doubt = hn::MulAdd(x, hn::Zero(d), *doubt);
    }
  }
  void note_doubt(Vector doubt) {
    const Floats d;
    contexts_are_finite_ = contexts_are_finite_ && hn::AllTrue(d, hn::Eq(doubt, hn::Zero(d)));
  }

  const ForwardSetup& setup_;
  const ForwardHead& head_;
  ForwardScratch& scratch_;
  DoubtfulKeys doubtful_;
  const ForwardHead* next_ = nullptr;
  Rows keys_, values_;
  std::int64_t block_ = -1;  // its first key
  std::int64_t count_ = 0;   // keys of the block
  bool doubtful_apart_ = false;
  bool contexts_are_finite_ = true;
  const std::int64_t width_;
  const bool direct_;  // the contexts are written from the sums, without a conversion
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_KEY_ROWS_INL_H_
