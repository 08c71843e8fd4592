// SPDX-License-Identifier: Apache-2.0
//
// The five products of the backward pass, by instructions that multiply vectors. Scores and dP have
// queries along the lanes, as in the forward pass (tile-inl.h). dQ, dK and dV have dimensions along
// the lanes (row_tile-inl.h): dK and dV sum over queries, and dQ sums over keys. These products
// read P and dS along either axis. No product therefore needs a transpose of weights.
//
// This class documents the interface that the pass (backward-inl.h) requires of its products;
// tile_products-inl.h is the other implementation.

#if defined(FOVEA_KERNELS_BACKWARD_ROW_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_BACKWARD_ROW_PRODUCTS_INL_H_
#undef FOVEA_KERNELS_BACKWARD_ROW_PRODUCTS_INL_H_
#else
#define FOVEA_KERNELS_BACKWARD_ROW_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "fovea/simd_math-inl.h"

#include "kernels/backward/backward.h"
#include "kernels/backward/backward_scratch.h"
#include "kernels/backward/bias_gradient-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/tile/panel-inl.h"
#include "kernels/tile/row_tile-inl.h"
#include "kernels/tile/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Returns the setup of the recomputed part of the forward pass, which needs no values.
inline ForwardSetup without_values(ForwardSetup setup) {
  setup.value_dim = 0;
  return setup;
}

/// Calls `clear` with each row, counted from `first`, that has a NaN or a number whose magnitude is
/// not below `limit`, and returns their number. Lists them in `doubtful` unless it is null.
template <class Clear>
std::int32_t find_doubtful_rows(const InputRows& rows, std::int64_t first, std::int64_t count,
                                std::int64_t dim, float limit, std::int32_t* doubtful,
                                const Clear& clear) {
  std::int32_t found = 0;
  for (std::int64_t r = 0; r < count; ++r) {
    bool fits = true;
    for (std::int64_t c = 0; c < dim; ++c) {
      fits = fits && std::abs(number_at(rows, first + r, c)) < limit;
    }
    if (fits) continue;
    if (doubtful != nullptr) doubtful[found] = static_cast<std::int32_t>(r);
    ++found;
    clear(r);
  }
  return found;
}

template <class ArithmeticOfTiles>
class RowProducts {
 public:
  using Arithmetic = ArithmeticOfTiles;
  /// The number of panels that are processed together.
  static constexpr std::int64_t kPanels = 1;
  /// Whether scores are computed for all vectors of a panel, visible or not.
  static constexpr bool kWholePanels = false;
  /// Whether there is push(panel, number, k, factor), which computes all of a tile without masks
  /// and options.
  static constexpr bool kHasPipeline = false;

  static BackwardScratchSizes scratch_sizes(const BackwardSetup& setup) {
    const ForwardSetup& forward = setup.forward;
    const std::int64_t keys = forward.block_keys;
    const std::int64_t key_width = whole_vectors(forward.head_dim);
    const std::int64_t value_width = whole_vectors(forward.value_dim);
    const std::int64_t value_steps = steps<Arithmetic>(forward.value_dim);
    const std::int64_t rows = kRowsArePairs ? 0 : keys * Arithmetic::kRowStride;
    return {.forward = HWY_NAMESPACE::scratch_sizes<Arithmetic>(without_values(forward)),
            .value_keys = keys * value_steps,
            .grad_panel = value_steps * kPanelLanes,
            .key_rows = steps<Arithmetic>(keys) * key_width,
            .query_rows = kPanelLanes * key_width,
            .grad_rows = kPanelLanes * value_width,
            .gradients = (kRowsArePairs ? keys : kTileRows) * kPanelLanes,
            .weight_rows = rows,
            .gradient_rows = rows,
            .gradient_pairs = 0,
            .query_sums = kPanelLanes * key_width,
            .key_sums = keys * key_width,
            .value_sums = keys * value_width};
  }

  RowProducts(const BackwardSetup& setup, BackwardScratch& scratch)
      : setup_(setup),
        forward_(setup.forward),
        scratch_(scratch),
        key_steps_(steps<Arithmetic>(forward_.head_dim)),
        value_steps_(steps<Arithmetic>(forward_.value_dim)),
        key_width_(whole_vectors(forward_.head_dim)),
        value_width_(whole_vectors(forward_.value_dim)) {}

  /// The number of keys, of those in a block, whose weights are kept for the sums.
  std::int64_t stretch_keys() const { return forward_.block_keys; }

  /// Packs `count` keys and values of a block, from key `first` on, and zeroes their gradients.
  void pack_block(const ForwardHead& head, std::int64_t first, std::int64_t count) {
    const std::int64_t kept = tiles_of(count) * kTileRows;
    Arithmetic::pack_keys(head.key, first, count, forward_.head_dim, scratch_.forward.keys);
    if (setup_.grad_query) {
      pack_finite_rows(head.key, first, count, kept, forward_.head_dim, scratch_.key_rows,
                       key_width_, nullptr);
    }
    if (setup_.of_scores()) {
      Arithmetic::pack_keys(head.value, first, count, forward_.value_dim, scratch_.value_keys);
    }
    std::fill_n(scratch_.key_sums, kept * key_width_, 0.0f);
    std::fill_n(scratch_.value_sums, kept * value_width_, 0.0f);
  }

  /// Loads panel `number` of those that are processed together. Scores are for queries times
  /// `factor`.
  void load(const BackwardHead& head, const Panel& panel, std::int64_t, float factor) {
    load_panel<Arithmetic>(head.forward.query, panel, forward_.head_dim, factor, panel.queries);
    if (setup_.of_scores()) {
      load_panel<Arithmetic>(head.grad_context, panel, forward_.value_dim, 1.0f,
                             scratch_.grad_panel);
    }
    const auto pack = [&](const InputRows& rows, std::int64_t dim, float* to, std::int64_t width) {
      return pack_finite_rows(rows, panel.first_query, panel.rows, kPanelLanes, dim, to, width,
                              scratch_.doubtful);
    };
    if (setup_.grad_key) {
      pack(head.forward.query, forward_.head_dim, scratch_.query_rows, key_width_);
    }
    if (setup_.grad_value) {
      doubtful_ = pack(head.grad_context, forward_.value_dim, scratch_.grad_rows, value_width_);
    }
    if (setup_.grad_query) std::fill_n(scratch_.query_sums, kPanelLanes * key_width_, 0.0f);
  }

  /// Begins a stretch of the block, from its key `first` on.
  void begin_stretch(std::int64_t) {}

  /// Computes the scores of the tile whose first key is key `k` of the stretch, for kVectors
  /// vectors from lane `lane` on, into row `k` of scratch.forward.scores.
  template <int kVectors>
  HWY_INLINE void scores(const Panel& panel, std::int64_t, std::int64_t k, std::int64_t lane) {
    tile<Arithmetic, kTileRows, kVectors, Finish::kStore>(
        scratch_.forward.keys + k * key_steps_, panel.queries + lane, key_steps_,
        scratch_.forward.scores + k * kPanelLanes + lane);
  }
  /// Computes dP into gradients_of().
  template <int kVectors>
  HWY_INLINE void weight_gradients(std::int64_t, std::int64_t k, std::int64_t lane) {
    tile<Arithmetic, kTileRows, kVectors, Finish::kStore>(scratch_.value_keys + k * value_steps_,
                                                          scratch_.grad_panel + lane, value_steps_,
                                                          gradients_of(k) + lane);
  }
  /// Returns the score gradients of the tile whose first key is key `k`, [kTileRows][kPanelLanes].
  float* gradients_of(std::int64_t k) const {
    return scratch_.gradients + (kRowsArePairs ? k * kPanelLanes : 0);
  }

  /// Returns 2^x, a weight, for x = score - lse, which rounding may make positive if lse is large.
  static HWY_INLINE Vector weight(Vector x) {
    return Arithmetic::exp2_of_nonpositive(
        fovea::HWY_NAMESPACE::simd_math::at_most(Floats(), 0.0f, x));
  }

  /// Stores weights of the keys `k` and k + 1.
  HWY_INLINE void store_weights(const Vector (&weight)[2], std::int64_t k, std::int64_t lane) {
    Arithmetic::store_rows(weight[0], weight[1], scratch_.weight_rows, k, lane);
  }
  HWY_INLINE void store_gradients(const Vector (&gradient)[2], std::int64_t k, std::int64_t lane) {
    Arithmetic::store_rows(gradient[0], gradient[1], scratch_.gradient_rows, k, lane);
    if constexpr (!kRowsArePairs) {
      Arithmetic::store_weights(gradient[0], gradient[1], scratch_.gradient_pairs + lane, k);
    }
  }
  /// Called when all weights and gradients of a tile are stored.
  void end_tile(std::int64_t, std::int64_t) {}

  /// Adds the stretch to the sums; some of its panels, or all, may see no key of it. `segments` are
  /// those of the last panel.
  void add_stretch(const BackwardHead& head, const Panel& panel, std::int64_t segments) {
    for (std::int64_t s = 0; s < segments; ++s) {
      const Segment& segment = scratch_.forward.segments[s];
      add_to_keys(head, panel, segment);
      if (setup_.grad_query) add_to_queries(segment);
    }
  }

  /// Called after the last stretch of the block.
  void end_stretches() {}

  /// Adds the panel's query gradients to the rows `to`.
  void add_query_gradients(const Panel& panel, std::int64_t, float* to, std::int64_t stride) const {
    const Floats d;
    const std::int64_t dim = forward_.head_dim;
    const auto factor = static_cast<float>(forward_.scale);
    const Vector scale = hn::Set(d, factor);
    for (std::int64_t r = 0; r < panel.rows; ++r, to += stride) {
      const float* from = scratch_.query_sums + r * key_width_;
      std::int64_t c = 0;
      for (; c + kLanes <= dim; c += kLanes) {
        hn::StoreU(hn::MulAdd(scale, hn::Load(d, from + c), hn::LoadU(d, to + c)), d, to + c);
      }
      for (; c < dim; ++c) to[c] += factor * from[c];
    }
  }

  /// Returns `factor` times row `r` of scratch.key_sums or scratch.value_sums, `dim` numbers, until
  /// the next call.
  float* finish_row(float* sums, std::int64_t r, std::int64_t dim, double factor) {
    const Floats d;
    const Vector f = hn::Set(d, static_cast<float>(factor));
    const std::int64_t width = whole_vectors(dim);
    float* const row = sums + r * width;
    for (std::int64_t c = 0; c < width; c += kLanes) {
      hn::Store(hn::Mul(f, hn::Load(d, row + c)), d, row + c);
    }
    return row;
  }

 private:
  static constexpr bool kRowsArePairs = Arithmetic::kRowsArePairs;

  /// Packs `count` rows, starting at row `first`, with Arithmetic::pack_rows. Rows with a NaN or
  /// infinity are packed as zeros. Returns the number of these rows, and lists them in `doubtful`
  /// unless it is null.
  static std::int32_t pack_finite_rows(const InputRows& rows, std::int64_t first,
                                       std::int64_t count, std::int64_t kept, std::int64_t dim,
                                       float* to, std::int64_t width, std::int32_t* doubtful) {
    if (Arithmetic::pack_rows(rows, first, count, kept, dim, to, width)) return 0;
    constexpr float kLimit = std::numeric_limits<float>::infinity();
    return find_doubtful_rows(rows, first, count, dim, kLimit, doubtful,
                              [&](std::int64_t r) { Arithmetic::clear_row(to, r, width); });
  }

  void add_to_keys(const BackwardHead& head, const Panel& panel, const Segment& segment) {
    const std::int64_t lane = segment.first_vector * kLanes;
    const std::int64_t step = lane / Arithmetic::kPerStep;
    const std::int64_t count = segment.vectors * kLanes / Arithmetic::kPerStep;
    const std::int64_t row = segment.first_key * Arithmetic::kRowStride + step;
    if (setup_.grad_value) {
      add_rows<Arithmetic, Layout<Arithmetic::kRowStride, 1>>(
          segment.keys, value_width_, scratch_.weight_rows + row,
          scratch_.grad_rows + step * value_width_, value_width_, count,
          scratch_.value_sums + segment.first_key * value_width_, value_width_);
      add_doubtful(head, panel, segment);
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
  void add_doubtful(const BackwardHead& head, const Panel& panel, const Segment& segment) {
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
              weight * number_at(head.grad_context, panel.first_query + r, c);
        }
      }
    }
  }

  void add_to_queries(const Segment& segment) {
    const std::int64_t lane = segment.first_vector * kLanes;
    const float* const pairs = kRowsArePairs ? scratch_.gradient_rows : scratch_.gradient_pairs;
    // The number of keys that fit in the L1 cache.
    constexpr std::int64_t kTogether = 96;
    const std::int64_t end = segment.first_key + segment.keys;
    // Groups begin at the same keys wherever the segment begins, so that sums have the same bits.
    for (std::int64_t k = segment.first_key, next = 0; k < end; k = next) {
      next = std::min((k / kTogether + 1) * kTogether, end);
      const std::int64_t keys = next - k;
      const std::int64_t step = steps<Arithmetic>(k);
      add_rows<Arithmetic, Layout<1, kPanelLanes>>(
          segment.vectors * kLanes, key_width_, pairs + step * kPanelLanes + lane,
          scratch_.key_rows + step * key_width_, key_width_, steps<Arithmetic>(keys),
          scratch_.query_sums + lane * key_width_, key_width_);
    }
  }

  const BackwardSetup& setup_;
  const ForwardSetup& forward_;
  BackwardScratch& scratch_;
  const std::int64_t key_steps_, value_steps_, key_width_, value_width_;
  std::int32_t doubtful_ = 0;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_BACKWARD_ROW_PRODUCTS_INL_H_
