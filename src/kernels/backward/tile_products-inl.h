// SPDX-License-Identifier: Apache-2.0
//
// The five products of the backward pass by the tile unit, in bfloat16 or in float32 as three parts
// (amx_numbers-inl.h); RowProducts documents the interface. All are transposed, as in the forward
// pass (amx_blocks-inl.h), so that no operand has to be turned between the products:
//
//     S^T  [keys][queries] = K Q^T      A: rows of K                B: Q, pairs of dimensions
//     dP^T [keys][queries] = V dO^T     A: rows of V                B: dO, pairs of dimensions
//     dV   [keys][dim]    += P^T dO     A: P^T as it is computed    B: dO, pairs of queries
//     dK   [keys][dim]    += dS^T Q     A: dS^T as it is computed   B: Q, pairs of queries
//     dQ^T [dim][queries] += K^T dS^T   A: columns of K             B: dS^T, pairs of keys
//
// P and dS are rounded, or split into parts. As operands A, their pairs are queries i and i + 16 of
// a panel, because two vectors of queries then become one by a shift and a blend; dS is stored a
// second time with pairs of adjacent keys for dQ.
//
// A tile of sums is loaded and stored for every pass over it, which costs more than its products if
// these are few. Therefore the weights of a stretch of the block, 8 panels by up to 128 keys, are
// kept, and each sum runs over all of them. In float32 they are half as many of either, because
// three parts would fill the L2 cache.
//
// push() is for units of 32 keys by 32 queries without masks, and without options between the
// products. A pipeline computes them (unit_pipeline-inl.h), with the same bits as the functions for
// other units.

#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "kernels/backward/backward.h"
#include "kernels/backward/backward_scratch.h"
#include "kernels/backward/row_products-inl.h"
#include "kernels/backward/unit_gradients-inl.h"
#include "kernels/backward/unit_pipeline-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/simd/tile_unit-inl.h"
#include "kernels/tile/amx_numbers-inl.h"
#include "kernels/tile/amx_pack-inl.h"
#include "kernels/tile/amx_sums-inl.h"
#include "kernels/tile/panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

template <class Numbers>
class TileProducts {
 public:
  using Arithmetic = Numbers;
  static constexpr std::int64_t kPanels = Numbers::kParts == 1 ? 8 : 4;
  static constexpr bool kWholePanels = true;
  static constexpr bool kHasPipeline = true;

  static BackwardScratchSizes scratch_sizes(const BackwardSetup& setup) {
    const Sizes size(setup.forward);
    const std::int64_t keys = whole_units(setup.forward.block_keys, kTileRows);
    const std::int64_t stretch = size.stretch_keys / kTileRows * kPanels * kOperand;
    ForwardScratchSizes forward =
        HWY_NAMESPACE::scratch_sizes<Arithmetic>(without_values(setup.forward));
    forward.panels = kPanels;
    forward.query_steps = size.key_steps * kUnitRows * Numbers::kParts;
    forward.keys = keys / kTileRows * size.key_steps * kOperand;
    return {.forward = forward,
            .value_keys = keys / kTileRows * size.value_steps * kOperand,
            // Also a row of results (finish_row).
            .grad_panel =
                std::max(kPanels * size.value_steps * kOperand, size.key_squares * kPanelLanes),
            .key_rows = keys / kTileRows * size.key_squares * kOperand,
            .query_rows = kPanels * size.key_squares * kOperand,
            .grad_rows = kPanels * size.value_squares * kOperand,
            .gradients = kSquare + Pipeline::kWorkFloats,
            .weight_rows = 2 * stretch,
            .gradient_rows = 2 * stretch,
            .gradient_pairs = 2 * stretch,
            .query_sums = kPanels * size.key_squares * kSquare,
            .key_sums = keys / kTileRows * size.key_squares * kSquare,
            .value_sums = keys / kTileRows * size.value_squares * kSquare};
  }

  TileProducts(const BackwardSetup& setup, BackwardScratch& scratch)
      : setup_(setup),
        forward_(setup.forward),
        scratch_(scratch),
        size_(setup.forward),
        pipeline_(size_.key_steps + size_.value_steps + 2 * size_.key_squares +
                  size_.value_squares) {}

  std::int64_t stretch_keys() const { return size_.stretch_keys; }

  void pack_block(const ForwardHead& head, std::int64_t first, std::int64_t count) {
    Magnitudes sizes;
    pack_as_rows<Numbers>(head.key, first, count, forward_.head_dim, scratch_.forward.keys, sizes);
    if (setup_.of_scores()) {
      pack_as_rows<Numbers>(head.value, first, count, forward_.value_dim, scratch_.value_keys,
                            sizes);
    }
    if (setup_.grad_query) {
      const std::int64_t dim = forward_.head_dim;
      pack_as_columns<Numbers>(head.key, first, count, dim, scratch_.key_rows, sizes);
      if (!sizes.below(kLimit)) {
        find_doubtful_rows(head.key, first, count, dim, kLimit, nullptr, [&](std::int64_t r) {
          clear_column<Numbers>(scratch_.key_rows, r, dim);
        });
      }
    }
    const std::int64_t tiles = whole_units(count, kTileRows) / kTileRows;
    std::fill_n(scratch_.key_sums, tiles * size_.key_squares * kSquare, 0.0f);
    std::fill_n(scratch_.value_sums, tiles * size_.value_squares * kSquare, 0.0f);
  }

  void load(const BackwardHead& head, const Panel& panel, std::int64_t number, float factor) {
    Numbers::load_queries(head.forward.query, panel.first_query, panel.rows, forward_.head_dim,
                          factor, panel.queries);
    if (setup_.of_scores()) {
      Numbers::load_queries(head.grad_context, panel.first_query, panel.rows, forward_.value_dim,
                            1.0f, grad_panel(number));
    }
    if (setup_.grad_key) {
      pack_row_pairs(head.forward.query, panel, forward_.head_dim, scratch_.query_rows, number);
    }
    if (number == 0) doubtful_ = 0;
    if (setup_.grad_value) {
      std::int32_t* const doubtful = scratch_.doubtful + doubtful_;
      const std::int32_t found = pack_row_pairs(head.grad_context, panel, forward_.value_dim,
                                                scratch_.grad_rows, number, doubtful);
      for (std::int32_t i = 0; i < found; ++i) {
        doubtful[i] += static_cast<std::int32_t>(number * kPanelLanes);
      }
      doubtful_ += found;
    }
    query_sums_begun_[number] = false;
    panels_ = number + 1;
  }

  void begin_stretch(std::int64_t first) {
    stretch_ = {.first = first, .buffer = 1 - stretch_.buffer};
    pipeline_.begin_stretch(scratch_.gradients + kSquare, size_.stretch_keys / kTileRows * kPanels);
  }

  /// Adds the unit of panel `number` whose first key is key `k` of the stretch. The softmax
  /// multiplies scores by `factor`.
  void push(const Panel& panel, std::int64_t number, std::int64_t k, float factor) {
    const std::int64_t tile = k / kTileRows;
    stretch_.seen[tile][number] = true;
    const std::int64_t at = number * kPanelLanes;
    pipeline_.push({.scores = score_product(panel, stretch_.first + k, nullptr),
                    .gradients = gradient_product(number, stretch_.first + k, nullptr),
                    .factor = factor,
                    .log2_sum = scratch_.log2_sum + at,
                    .delta = scratch_.delta + at,
                    .to = operands(stretch_, tile, number)});
  }

  template <int kVectors>
  HWY_INLINE void scores(const Panel& panel, std::int64_t, std::int64_t k, std::int64_t) {
    static_assert(kVectors <= kPanelVectors);
    pipeline_.finish_units();
    product_apart(
        score_product(panel, stretch_.first + k, scratch_.forward.scores + k * kPanelLanes));
  }
  template <int kVectors>
  HWY_INLINE void weight_gradients(std::int64_t number, std::int64_t k, std::int64_t) {
    product_apart(gradient_product(number, stretch_.first + k, gradients_of(k)));
  }
  float* gradients_of(std::int64_t) const { return scratch_.gradients; }

  /// As RowProducts::weight(), with the precision of float32, as gradients of biases are not
  /// rounded.
  static HWY_INLINE Vector weight(Vector x) { return weight_of<Numbers>(x); }

  /// Stores weights and gradients in place of the scores and dP; end_tile() rounds them.
  HWY_INLINE void store_weights(const Vector (&weight)[2], std::int64_t k, std::int64_t lane) {
    store_floats(weight, scratch_.forward.scores + k * kPanelLanes + lane);
  }
  HWY_INLINE void store_gradients(const Vector (&gradient)[2], std::int64_t k, std::int64_t lane) {
    store_floats(gradient, scratch_.gradients + k % kTileRows * kPanelLanes + lane);
  }
  void end_tile(std::int64_t number, std::int64_t k) {
    stretch_.seen[k / kTileRows][number] = true;
    const Floats d;
    const float* weights = scratch_.forward.scores + k * kPanelLanes;
    const float* gradients = scratch_.gradients;
    UnitOperands<Numbers> to = operands(stretch_, k / kTileRows, number);
    const bool of_scores = setup_.of_scores();
    for (std::int64_t i = 0; i < kTileRows; i += 2) {
      if (i == kUnitRows) to.next_tile();
      to.store_weights(hn::Load(d, weights), hn::Load(d, weights + kLanes),
                       hn::Load(d, weights + kPanelLanes),
                       hn::Load(d, weights + kPanelLanes + kLanes));
      weights += 2 * kPanelLanes;
      if (!of_scores) continue;
      to.store_gradients(hn::Load(d, gradients), hn::Load(d, gradients + kLanes),
                         hn::Load(d, gradients + kPanelLanes),
                         hn::Load(d, gradients + kPanelLanes + kLanes));
      gradients += 2 * kPanelLanes;
    }
  }

  void add_stretch(const BackwardHead& head, const Panel&, std::int64_t) {
    pipeline_.begin_sums();
    for (std::int64_t t = 0; t < kMaxTiles; ++t) {
      const Range panels = range_of([&](std::int64_t p) { return stretch_.seen[t][p]; }, kPanels);
      if (panels.count() == 0) continue;
      for (std::int64_t p = panels.begin; p < panels.end; ++p) clear_hidden(t, p);
      const std::int64_t tile = stretch_.first / kTileRows + t;
      const UnitOperands<Numbers> first = operands(stretch_, t, panels.begin);
      if (setup_.grad_value) {
        add_sums_of_keys(first.weights, panels, scratch_.grad_rows, size_.value_squares,
                         scratch_.value_sums + tile * size_.value_squares * kSquare);
      }
      if (setup_.grad_key) {
        add_sums_of_keys(first.rows, panels, scratch_.query_rows, size_.key_squares,
                         scratch_.key_sums + tile * size_.key_squares * kSquare);
      }
    }
    for (std::int64_t p = 0; p < panels_ && setup_.grad_query; ++p) {
      const Range tiles = range_of([&](std::int64_t t) { return stretch_.seen[t][p]; }, kMaxTiles);
      if (tiles.count() == 0) continue;
      for (std::int64_t t = tiles.begin; t < tiles.end; ++t) clear_hidden(t, p);
      add_sums_of_queries(p, tiles);
    }
    // In float32, such rows see nothing; otherwise, FMA computes the item.
    if (Numbers::kParts == 1 && setup_.grad_value && doubtful_ > 0) {
      pipeline_.finish_units();
      add_doubtful(head);
    }
  }

  /// Finishes all stretches.
  void end_stretches() {
    pipeline_.finish_sums();
    pipeline_.finish_units();
  }

  void add_query_gradients(const Panel& panel, std::int64_t number, float* to,
                           std::int64_t stride) const {
    if (!query_sums_begun_[number]) return;
    const __m512 scale = _mm512_set1_ps(static_cast<float>(forward_.scale));
    for (std::int64_t lane = 0; lane < panel.rows; lane += kUnitRows) {
      const std::int64_t rows = std::min(kUnitRows, panel.rows - lane);
      for (std::int64_t c = 0; c < forward_.head_dim; c += kUnitRows) {
        const std::int64_t dims = std::min(kUnitRows, forward_.head_dim - c);
        const auto there = static_cast<__mmask16>((1u << dims) - 1u);
        __m512i words[16];
        const float* const from = query_sums(number) + c * kPanelLanes + lane;
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) words[i] = _mm512_load_si512(from + i * kPanelLanes);
        turn_words(words);
        for (std::int64_t r = 0; r < rows; ++r) {
          float* const row = to + (lane + r) * stride + c;
          const __m512 before = _mm512_maskz_loadu_ps(there, row);
          _mm512_mask_storeu_ps(row, there,
                                _mm512_fmadd_ps(scale, _mm512_castsi512_ps(words[r]), before));
        }
      }
    }
  }

  float* finish_row(const float* sums, std::int64_t r, std::int64_t dim, double factor) {
    const Floats d;
    const Vector f = hn::Set(d, static_cast<float>(factor));
    const std::int64_t squares = column_tiles(dim) / 2;
    const float* const from = sums + r / kTileRows * squares * kSquare + r % kTileRows * 32;
    float* const row = scratch_.grad_panel;  // large enough, and not in use
    for (std::int64_t c = 0; c < dim; c += kLanes) {
      hn::Store(hn::Mul(f, hn::Load(d, from + c / 32 * kSquare + c % 32)), d, row + c);
    }
    return row;
  }

 private:
  static_assert(kTileRows == 32 && kPanelLanes == 32);
  /// Words of 32 x 32 bfloat16, in pairs, and of as many numbers with all their parts.
  static constexpr std::int64_t kPlane = 32 * 32 / 2;
  static constexpr std::int64_t kOperand = kPlane * Numbers::kParts;
  /// Rows with NaN or such numbers, which have no finite parts, are packed as zeros.
  static constexpr float kLimit =
      Numbers::kParts == 1 ? std::numeric_limits<float>::infinity() : 0x1p127f;
  static constexpr std::int64_t kMaxStretchKeys = Numbers::kParts == 1 ? 128 : 64;
  static constexpr std::int64_t kMaxTiles = kMaxStretchKeys / kTileRows;
  using Pipeline = UnitPipeline<Numbers, 2 * kMaxTiles + kPanels>;

  struct Sizes {
    explicit Sizes(const ForwardSetup& setup)
        : key_steps(row_tiles(setup.head_dim)),
          value_steps(row_tiles(setup.value_dim)),
          key_squares(column_tiles(setup.head_dim) / 2),
          value_squares(column_tiles(setup.value_dim) / 2) {
      const std::int64_t count = (setup.block_keys + kMaxStretchKeys - 1) / kMaxStretchKeys;
      stretch_keys = whole_units((setup.block_keys + count - 1) / count, kTileRows);
    }
    std::int64_t key_steps, value_steps;      // of 32 dimensions, at least one
    std::int64_t key_squares, value_squares;  // the same, or none
    std::int64_t stretch_keys;
  };
  struct Range {
    std::int64_t begin, end;
    std::int64_t count() const { return end - begin; }
  };
  /// Some keys of the block whose weights are kept, in one of two buffers.
  struct Stretch {
    std::int64_t first = 0;  // its first key, counted from the block's
    std::int64_t buffer = 0;
    bool seen[kMaxTiles][kPanels] = {};  // whether some key of a tile is visible to a panel
  };

  /// Returns the range of the numbers below `count` for which `seen` holds.
  template <class Seen>
  static Range range_of(const Seen& seen, std::int64_t count) {
    Range range{0, 0};
    for (std::int64_t i = 0; i < count; ++i) {
      if (!seen(i)) continue;
      if (range.end == 0) range.begin = i;
      range.end = i + 1;
    }
    return range;
  }
  /// Zeroes a unit's weights if it has no visible key.
  void clear_hidden(std::int64_t tile, std::int64_t panel) {
    bool& seen = stretch_.seen[tile][panel];
    if (seen) return;
    seen = true;
    const UnitOperands<Numbers> of = operands(stretch_, tile, panel);
    std::fill_n(of.weights, kOperand, 0.0f);
    std::fill_n(of.rows, kOperand, 0.0f);
    for (std::int64_t part = 0; part < Numbers::kParts; ++part) {
      std::fill_n(of.pairs + part * of.pair_part, kPlane, 0.0f);
    }
  }

  /// Layouts: P and dS for dV and dK [2][stretch_keys / 32][kPanels] units of UnitOperands, dS for
  /// dQ [2][kPanels][parts][stretch_keys / 32][16 pairs of keys][32 queries].
  UnitOperands<Numbers> operands(const Stretch& stretch, std::int64_t tile,
                                 std::int64_t panel) const {
    const std::int64_t tiles = size_.stretch_keys / kTileRows;
    const std::int64_t first = stretch.buffer * tiles * kPanels;
    const std::int64_t by_tile = (first + tile * kPanels + panel) * kOperand;
    const std::int64_t by_panel = (first + panel * tiles) * kOperand + tile * kPlane;
    return {.weights = scratch_.weight_rows + by_tile,
            .rows = scratch_.gradient_rows + by_tile,
            .pairs = scratch_.gradient_pairs + by_panel,
            .pair_part = tiles * kPlane};
  }
  float* grad_panel(std::int64_t number) const {
    return scratch_.grad_panel + number * size_.value_steps * kOperand;
  }
  float* query_sums(std::int64_t number) const {
    return scratch_.query_sums + number * size_.key_squares * kSquare;
  }

  static HWY_INLINE void store_floats(const Vector (&two)[2], float* to) {
    hn::Store(two[0], Floats(), to);
    hn::Store(two[1], Floats(), to + kPanelLanes);
  }

  /// Packs a panel's rows into [squares][parts][kPanels][16][32]: row i of a square holds pairs of
  /// the panel's rows i and i + 16. Returns the number of rows that are packed as zeros (kLimit),
  /// and lists them in `doubtful` unless it is null.
  static std::int32_t pack_row_pairs(const InputRows& rows, const Panel& panel, std::int64_t dim,
                                     float* packed, std::int64_t number,
                                     std::int32_t* doubtful = nullptr) {
    const auto* const from = rows.row_as<typename Numbers::Element>(panel.first_query);
    const auto square = [&](std::int64_t c) {
      return packed + c / 32 * kPanels * kOperand + number * kPlane;
    };
    Magnitudes sizes;
    for (std::int64_t c = 0; c < dim; c += 32) {
      for (std::int64_t i = 0; i < kUnitRows; ++i) {
        Numbers::pack_row_pair(from, rows.stride, i, panel.rows, c, dim, square(c) + i * 32,
                               kPanels * kPlane, sizes);
      }
    }
    if (sizes.below(kLimit)) return 0;
    const auto clear = [&](std::int64_t r) {
      for (std::int64_t i = 0; i < column_tiles(dim) / 2 * Numbers::kParts; ++i) {
        auto* const pairs = reinterpret_cast<std::uint16_t*>(
            packed + (i * kPanels + number) * kPlane + r % kUnitRows * 32);
        for (std::int64_t c = 0; c < 32; ++c) pairs[2 * c + r / kUnitRows] = 0;
      }
    };
    return find_doubtful_rows(rows, panel.first_query, panel.rows, dim, kLimit, doubtful, clear);
  }

  /// 32 x 32 scores, or dP: the block's keys from `key` on times a panel.
  Sums score_product(const Panel& panel, std::int64_t key, float* to) const {
    return unit_product(scratch_.forward.keys, size_.key_steps, key, panel.queries, to);
  }
  Sums gradient_product(std::int64_t number, std::int64_t key, float* to) const {
    return unit_product(scratch_.value_keys, size_.value_steps, key, grad_panel(number), to);
  }
  static Sums unit_product(const float* rows, std::int64_t steps, std::int64_t key,
                           const float* panel, float* to) {
    return {.a = rows + key / kTileRows * steps * kOperand,
            .a_next = steps * kOperand / 2,
            .a_step = kOperand / 2,
            .b = panel,
            .b_part = steps * kPlane,
            .steps = steps,
            .from = nullptr,
            .to = to};
  }
  static HWY_INLINE void product_apart(const Sums& sums) {
    Pending pending{};
    NoWeights none;
    four_sums<Numbers, 2, true, 0>(sums, pending, none);
    store_sums<2>(pending);
  }

  /// Adds the weights of 32 keys, times rows of queries, to the sums of these keys.
  void add_sums_of_keys(const float* weights, const Range& panels, const float* rows,
                        std::int64_t squares, float* to) {
    pipeline_.add_sums({.next = {.a = weights,
                                 .a_next = kOperand / 2,
                                 .a_step = kOperand,
                                 .b = rows + panels.begin * kPlane,
                                 .b_part = kPanels * kPlane,
                                 .steps = panels.count(),
                                 .from = to,
                                 .to = to},
                        .squares = squares,
                        .a_square = 0,
                        .b_square = kPanels * kOperand});
  }
  void add_sums_of_queries(std::int64_t number, const Range& tiles) {
    const std::int64_t tile = stretch_.first / kTileRows + tiles.begin;
    const UnitOperands<Numbers> first = operands(stretch_, tiles.begin, number);
    pipeline_.add_sums({.next = {.a = scratch_.key_rows + tile * size_.key_squares * kOperand,
                                 .a_next = kOperand / 2,
                                 .a_step = size_.key_squares * kOperand,
                                 .b = first.pairs,
                                 .b_part = first.pair_part,
                                 .steps = tiles.count(),
                                 .from = query_sums_begun_[number] ? query_sums(number) : nullptr,
                                 .to = query_sums(number)},
                        .squares = size_.key_squares,
                        .a_square = kOperand,
                        .b_square = 0});
    query_sums_begun_[number] = true;
  }

  /// Adds the contributions of the rows of dO that were packed as zeros to the gradients of the
  /// keys visible to these rows.
  void add_doubtful(const BackwardHead& head) const {
    const std::int64_t first = scratch_.forward.panels[0].first_query;
    for (std::int32_t i = 0; i < doubtful_; ++i) {
      const std::int64_t row = scratch_.doubtful[i];
      const std::int64_t panel = row / kPanelLanes, lane = row % kPanelLanes;
      for (std::int64_t k = 0; k < size_.stretch_keys; ++k) {
        if (!stretch_.seen[k / kTileRows][panel]) continue;
        const auto* const halves = reinterpret_cast<const std::uint16_t*>(
            operands(stretch_, k / kTileRows, panel).weights + k % kTileRows * 16);
        const std::uint32_t bits = halves[lane % kUnitRows * 2 + lane / kUnitRows];
        const float weight = std::bit_cast<float>(bits << 16);
        if (weight == 0.0f) continue;
        float* const sums = scratch_.value_sums +
                            (stretch_.first + k) / kTileRows * size_.value_squares * kSquare +
                            k % kTileRows * 32;
        for (std::int64_t c = 0; c < forward_.value_dim; ++c) {
          sums[c / 32 * kSquare + c % 32] += weight * number_at(head.grad_context, first + row, c);
        }
      }
    }
  }

  const BackwardSetup& setup_;
  const ForwardSetup& forward_;
  BackwardScratch& scratch_;
  const Sizes size_;
  Stretch stretch_;          // the current one
  std::int64_t panels_ = 0;  // of the group
  std::int32_t doubtful_ = 0;
  bool query_sums_begun_[kPanels] = {};  // whether query_sums has numbers
  Pipeline pipeline_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
