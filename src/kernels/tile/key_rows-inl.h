// SPDX-License-Identifier: Apache-2.0
//
// The products with a block of keys and values that are read in place, for few queries: packing
// them into tiles (key_block-inl.h) would take longer than the products. Rows of keys are broadcast
// one element at a time, as packed keys are, so scores have the same layout. Values have dimensions
// along the lanes, and so have the contexts, which are written without a transpose. Rows that are
// not float32, and values whose last vector is not full, are first copied to the scratch memory.

#if defined(FOVEA_KERNELS_TILE_KEY_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_KEY_ROWS_INL_H_
#undef FOVEA_KERNELS_TILE_KEY_ROWS_INL_H_
#else
#define FOVEA_KERNELS_TILE_KEY_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/simd/simd-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/tile/doubtful_keys-inl.h"
#include "kernels/tile/float_arithmetic-inl.h"
#include "kernels/tile/panel-inl.h"
#include "kernels/tile/row_tile-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

constexpr std::int64_t whole_vectors(std::int64_t count) {
  return (count + kLanes - 1) / kLanes * kLanes;
}

/// As tile() with Finish::kMaximum, where row i of A is read at a + i * stride. Rows from `rows` on
/// repeat the last one.
template <int kVectors>
HWY_INLINE void tile_of_rows(const float* a, std::int64_t stride, std::int64_t rows,
                             const float* HWY_RESTRICT b, std::int64_t steps, float* HWY_RESTRICT c,
                             float* HWY_RESTRICT maximum) {
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
  for (std::int64_t step = 0; step < steps; ++step) {
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

/// Returns whether `count` rows of `dim` numbers, a multiple of kLanes, are all finite.
inline bool rows_are_finite(const float* rows, std::int64_t stride, std::int64_t count,
                            std::int64_t dim) {
  constexpr int kTogether = 4;  // independent sums hide the latency of additions
  const Floats d;
  Vector doubt[kTogether];
#pragma GCC unroll 4
  for (Vector& one : doubt) one = hn::Zero(d);
  for (std::int64_t r = 0; r < count; r += kTogether) {
    const float* row[kTogether];  // repeats the last row if fewer are left
#pragma GCC unroll 4
    for (int i = 0; i < kTogether; ++i) row[i] = rows + std::min(r + i, count - 1) * stride;
    for (std::int64_t c = 0; c < dim; c += kLanes) {
#pragma GCC unroll 4
      for (int i = 0; i < kTogether; ++i) {
        const Vector x = hn::LoadU(d, row[i] + c);
        doubt[i] = hn::Add(doubt[i], hn::Sub(x, x));  // x - x is 0 if x is finite, else NaN
      }
    }
  }
  const Vector all = hn::Add(hn::Add(doubt[0], doubt[1]), hn::Add(doubt[2], doubt[3]));
  return hn::AllTrue(d, hn::Eq(all, hn::Zero(d)));
}

class KeyRows {
 public:
  using Arithmetic = FloatArithmetic;

  KeyRows(const ForwardSetup& setup, const ForwardHead& head, ForwardScratch& scratch)
      : setup_(setup),
        head_(head),
        scratch_(scratch),
        doubtful_(setup, head, scratch),
        width_(whole_vectors(setup.value_dim)) {}

  static ForwardScratchSizes scratch_sizes(const ForwardSetup& setup) {
    ForwardScratchSizes sizes = HWY_NAMESPACE::scratch_sizes<Arithmetic>(setup);
    sizes.query_steps = whole_vectors(setup.head_dim);
    sizes.value_dim = whole_vectors(setup.value_dim);
    return sizes;
  }

  static constexpr bool kHasPipeline = false;
  static constexpr bool kMayRefuse = false;
  /// Returns the exponent that weights are relative to: weights are 2^(factor * score - reference).
  static double reference(float maximum, float factor) {
    return static_cast<double>(maximum) * static_cast<double>(factor);
  }
  std::int64_t keys_together() const { return setup_.block_keys; }

  bool enter(std::int64_t block, std::int64_t count) {
    if (block == block_) return false;
    open(block, count);
    return true;
  }

  template <int kVectors>
  HWY_INLINE void scores(std::int64_t key, const float* queries, float* scores,
                         float* maximum) const {
    tile_of_rows<kVectors>(keys_.row(key), keys_.stride, count_ - key, queries, setup_.head_dim,
                           scores, maximum);
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
    const std::int64_t keys_end = std::min(segment.first_key + segment.keys, count_);
    rescale(panel, lane, end);
    for (std::int64_t key = segment.first_key; key < keys_end; key += kKeysTogether) {
      const std::int64_t last = std::min(key + kKeysTogether, keys_end);
      for (std::int64_t row = lane; row < end; row += kRowsTogether) {
        const std::int64_t rows = std::min(kRowsTogether, end - row);
        // Under a causal mask, the first rows do not see the last keys.
        std::int64_t seen = last;
        if (segment.masked && panel.exact) {
          const std::int32_t* const ends = scratch_.key_end + row;
          seen = std::min<std::int64_t>(seen, *std::max_element(ends, ends + rows));
        }
        if (seen <= key) continue;
        fetch();
        add_rows<Arithmetic, Layout<1, kPanelLanes>>(
            (rows + kRowsMultiple - 1) / kRowsMultiple * kRowsMultiple, width_,
            scratch_.weights + key * kPanelLanes + row, values_.row(key), values_.stride,
            seen - key, panel.context + row * width_, width_);
      }
    }
  }
  void add_doubtful(const Panel& panel, const Segment& segment) {
    doubtful_.add(segment, [&](std::int64_t key, std::int64_t lane, std::int64_t c, float value) {
      panel.context[lane * width_ + c] += Arithmetic::weight(scratch_.weights, key, lane) * value;
    });
  }

  void write_context(const Panel& panel) const {
    const bool direct = head_.context.dtype == DType::kFloat32 && setup_.value_dim == width_;
    for (std::int64_t row = 0; row < panel.rows; ++row) {
      float* const context = panel.context + row * width_;
      const std::int64_t query = panel.first_query + row;
      scale_row(context, scratch_.factor[row],
                direct ? head_.context.row_as<float>(query) : context);
      if (direct) continue;
      with_element_type(head_.context.dtype, [&](auto* type) {
        using T = std::remove_cvref_t<decltype(*type)>;
        write_numbers(context, setup_.value_dim, head_.context.row_as<T>(query));
      });
    }
  }

 private:
  void open(std::int64_t block, std::int64_t count) {
    block_ = block;
    count_ = count;
    doubtful_.open(block);
    if (head_.key.dtype == DType::kFloat32) {
      keys_ = {head_.key.row_as<float>(block), head_.key.stride};
    } else {
      keys_ = {scratch_.keys, whole_vectors(setup_.head_dim)};
      Arithmetic::pack_rows(head_.key, block, count, count, setup_.head_dim, scratch_.keys,
                            keys_.stride);
    }
    if (head_.value.dtype == DType::kFloat32 && setup_.value_dim == width_) {
      values_ = {head_.value.row_as<float>(block), head_.value.stride};
      if (rows_are_finite(values_.data, values_.stride, count, width_)) return;
    }
    values_ = {scratch_.values, width_};
    if (Arithmetic::pack_rows(head_.value, block, count, count, setup_.value_dim, scratch_.values,
                              width_)) {
      return;
    }
    doubtful_.find(count,
                   [&](std::int64_t key) { Arithmetic::clear_row(scratch_.values, key, width_); });
  }

  /// Rows of weights that are multiplied with values at a time: a multiple of the rows of a tile.
  static constexpr std::int64_t kRowsTogether = 12;
  /// Keys whose values fit in the L1 cache.
  static constexpr std::int64_t kKeysTogether = 96;

  struct Rows {
    const float* data = nullptr;
    std::int64_t stride = 0;
    const float* row(std::int64_t number) const { return data + number * stride; }
  };

  /// Multiplies contexts by scratch.factor.
  void rescale(const Panel& panel, std::int64_t row, std::int64_t end) const {
    for (; row < end; ++row) {
      float* const context = panel.context + row * width_;
      if (scratch_.factor[row] != 1.0f) scale_row(context, scratch_.factor[row], context);
    }
  }

  HWY_INLINE void scale_row(const float* context, float factor, float* to) const {
    const Floats d;
    const Vector f = hn::Set(d, factor);
    for (std::int64_t c = 0; c < width_; c += kLanes) {
      hn::StoreU(hn::Mul(f, hn::Load(d, context + c)), d, to + c);
    }
  }

  const ForwardSetup& setup_;
  const ForwardHead& head_;
  ForwardScratch& scratch_;
  DoubtfulKeys doubtful_;
  Rows keys_, values_;
  std::int64_t block_ = -1;  // its first key
  std::int64_t count_ = 0;   // keys of the block
  const std::int64_t width_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_KEY_ROWS_INL_H_
