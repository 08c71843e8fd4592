// SPDX-License-Identifier: Apache-2.0
//
// The lenses of the tile unit's forward pass. They see the same weights as the pass itself,
// relative to a reference that is not the row's maximum (amx_keys-inl.h), so nothing is computed
// twice.
//
// In the pipeline, each weight adds to the sums of its row and block: 2^x x for the entropy, 2^x
// times the distance from the middle of the block and times its square, and the sum of a cell of
// the map. All sums are of float32 weights, not of the bfloat16 weights that multiply values. A
// score above the row's k-th largest so far sets a bit; the top keys are read through these bits
// when the block is done.
//
// Distances. Blocks are combined by their means and sums of squares about the mean (Chan, Golub and
// LeVeque 1979), which loses no digits, however far away a row's keys are. Within a block, squares
// about its middle lose digits if nearly all of the weight is on a few adjacent keys. Sums of such
// blocks are computed again, about a key near their mean.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include <immintrin.h>

#include "kernels/lenses/lenses.h"
#include "kernels/lenses/map_cells-inl.h"
#include "kernels/lenses/pipeline_watch-inl.h"
#include "kernels/lenses/top_keys-inl.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/tile/amx_keys-inl.h"
#include "kernels/tile/amx_numbers-inl.h"
#include "kernels/tile/amx_sums-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// The lenses of one work item. Functions are declared in the order in which the pass calls them.
template <class Numbers>
class AmxLenses {
 public:
  static constexpr bool kNone = false;
  template <bool kAny>
  using Watch = PipelineWatch<kAny>;

  AmxLenses(const ForwardSetup& setup, const ForwardHead& head, ForwardScratch& scratch,
            std::byte* memory, float score_factor)
      : setup_(setup),
        lenses_(setup.lenses),
        head_(head),
        scratch_(scratch),
        own_(LensScratch::at(memory, sizes(setup))),
        top_(top_of(setup.lenses)),
        cells_(lenses_, head, setup.block_keys),
        score_factor_(score_factor),
        at_once_(panels_at_once(setup)) {
    if (lenses_.map) cells_.find_columns(own_.column_begin);
  }

  static std::size_t scratch_bytes(const ForwardSetup& setup) {
    return LensScratch().lay_out(nullptr, sizes(setup));
  }

  void open(std::int64_t p, const Panel& panel) {
    PanelLenses& seen = lenses_of(p);
    if (lenses_.statistics) {
      std::fill_n(seen.sums, kPanelLanes, 0.0f);
      for (double* const sums : {seen.exponents, seen.distances, seen.squares}) {
        std::fill_n(sums, kPanelLanes, 0.0);
      }
      std::fill_n(seen.first_score, kPanelLanes, kMinusInfinity);
    }
    top_.open(panel.rows, seen);
    if (lenses_.map) {
      const std::int64_t first = panel.keys_begin / setup_.block_keys;
      const std::int64_t last = (panel.keys_end + setup_.block_keys - 1) / setup_.block_keys;
      if (first < last) std::fill(seen.block_seen + first, seen.block_seen + last, 0);
    }
  }

  // ---- the pipeline

  /// Returns whether the part needs Watch<true>.
  template <class Part>
  bool needs_any(const Part& part) const {
    return part.masked[0] || part.masked[1] || lenses_.pool == Pool::kMax;
  }
  /// Begins a part of a block, whose scores are computed.
  template <class Part>
  WatchPlace begin_part(const Part& part) {
    const Panel& panel = *part.panel;
    PanelLenses& seen = lenses_of(part.panel_number);
    top_.begin(scratch_.scores, part.keys, kPanelVectors, seen);
    const std::int64_t* column_ends = &kNever;
    float* cell = own_.row;
    if (lenses_.map) {
      // A part has all keys that a row of the panel sees, so cells begin and end in it.
      begin_cells(panel, part.block, part.keys < setup_.block_keys, seen);
      const std::int64_t column = column_of(part.block + part.first_key);
      column_ends = own_.column_begin + column + 1;
      cell = cell_of_block(seen, part.block, column);
    }
    return {.block = part.block,
            .first_key = part.first_key,
            .keys = part.keys,
            .least = seen.top_least,
            .pool = lenses_.pool,
            .column_ends = column_ends,
            .cell = cell,
            .sums = own_.sums,
            .exponents = own_.exponents,
            .distances = own_.distances,
            .squares = own_.squares,
            .hits = own_.hits};
  }
  /// Adds what the pipeline has stored.
  template <class Part>
  HWY_NOINLINE void end_part(const Part& part) {
    PanelLenses& seen = lenses_of(part.panel_number);
    const std::int64_t first = part.block + part.first_key;
    if (lenses_.statistics) {
      if (first == 0) std::copy_n(scratch_.scores, kPanelLanes, seen.first_score);
      const double middle = static_cast<double>(part.block + kMiddle);
      const float first_distance = static_cast<float>(part.first_key - kMiddle);
      for (std::int64_t lane = 0; lane < kPanelLanes; lane += kLanes) {
        const Run run{scratch_.scores + lane, part.keys, lane, first_distance, middle};
        add_run(*part.panel, run, seen);
      }
    }
    for (std::int64_t lane = 0; lane < kPanelLanes; lane += kLanes) {
      insert_hits(scratch_.scores + lane, first, lane, seen);
    }
  }

  // ---- blocks that the pipeline does not compute

  /// Called after maxima are raised, and sums multiplied by scratch.factor.
  void rescale(std::int64_t p, const Panel&) {
    if (!lenses_.statistics) return;
    PanelLenses& seen = lenses_of(p);
    for (std::int64_t i = 0; i < kPanelLanes; ++i) {
      const float factor = scratch_.factor[i];
      if (factor == 1.0f) continue;
      const double f = static_cast<double>(factor);
      // Weights are 2^x, and 2^x f = 2^(x + log2 f).
      const double more = factor > 0.0f ? std::log2(f) : 0.0;
      seen.sums[i] *= factor;
      seen.exponents[i] = f * seen.exponents[i] + more * static_cast<double>(seen.sums[i]);
      seen.squares[i] *= f;
    }
  }
  void begin_weights(std::int64_t p, const Panel& panel, std::int64_t block, std::int64_t) {
    if (lenses_.map) begin_cells(panel, block, true, lenses_of(p));
  }
  void look_at_weights(std::int64_t p, const Panel& panel, std::int64_t block,
                       const Segment& segment) {
    PanelLenses& seen = lenses_of(p);
    const float* const scores = scratch_.scores + segment.first_key * kPanelLanes;
    if (block + segment.first_key == 0 && lenses_.statistics) {
      const std::int64_t lane = segment.first_vector * kLanes;
      std::copy_n(scores + lane, segment.vectors * kLanes, seen.first_score + lane);
    }
    if (segment.vectors == kPanelVectors) top_.begin(scores, segment.keys, kPanelVectors, seen);
    seen.top_begun = true;
    const double middle = static_cast<double>(block + kMiddle);
    const float first_distance = static_cast<float>(segment.first_key - kMiddle);
    for (std::int64_t v = segment.first_vector; v < segment.first_vector + segment.vectors; ++v) {
      const std::int64_t lane = v * kLanes;
      const Run run{scores + lane, segment.keys, lane, first_distance, middle};
      look_at_run(panel, block, segment.first_key, run, seen);
      insert_hits(run.scores, block + segment.first_key, lane, seen);
    }
  }

  /// Writes the results of the panel's rows. Weights are factor[lane] 2^(score - maximum).
  void close(std::int64_t p, const Panel& panel, const float* factor) {
    PanelLenses& seen = lenses_of(p);
    const Floats d;
    for (std::int64_t lane = 0; lane < kPanelLanes; lane += kLanes) {
      const auto weight = [&](Vector score) HWY_ATTR {
        const Vector x =
            exponent_of(hn::Set(d, score_factor_), score, hn::Load(d, panel.maximum + lane));
        return hn::Mul(hn::Load(d, factor + lane), exp2_of(x));
      };
      if (top_.any()) hn::Store(weight(top_.largest(seen, lane)), d, own_.largest + lane);
      if (lenses_.statistics) {
        hn::Store(weight(hn::Load(d, seen.first_score + lane)), d, own_.first + lane);
      }
    }
    if (lenses_.statistics) {
      for (std::int64_t i = 0; i < panel.rows; ++i) write_statistics(panel, seen, factor, i);
    }
    if (lenses_.top > 0) {
      top_.write(panel, seen, head_, [&](Vector score, std::int64_t lane) HWY_ATTR {
        const Vector below = hn::Sub(score, top_.largest(seen, lane));
        return hn::Mul(hn::Load(d, own_.largest + lane),
                       exp2_of(hn::Mul(hn::Set(d, score_factor_), below)));
      });
    }
    if (lenses_.map) cells_.add(panel, seen, factor, score_factor_);
  }

 private:
  /// Some keys and the rows of one vector.
  struct Run {
    const float* scores;  // [keys][kPanelLanes]
    std::int64_t keys;
    std::int64_t lane;
    float first_distance;  // of the first key from `middle`
    double middle;
  };
  /// Blocks whose keys have a smaller variance about their mean, in keys, are summed again.
  static constexpr float kLeastVariance = 128.0f;

  static std::int64_t top_of(const LensSetup& lenses) {
    return std::max<std::int64_t>(lenses.top, lenses.statistics ? 1 : 0);
  }
  static LensScratchSizes sizes(const ForwardSetup& setup) {
    LensSetup lenses = setup.lenses;
    lenses.top = top_of(lenses);
    return {.setup = lenses,
            .panels = panels_at_once(setup),
            .lanes = kPanelLanes,
            .tile_rows = kTileRows,
            .block_keys = setup.block_keys,
            .most_keys = std::max<std::int64_t>(setup.most_keys, 1)};
  }
  /// If all keys are packed at once, few panels are open at a time, so they share memory.
  static std::int64_t panels_at_once(const ForwardSetup& setup) {
    return AmxKeys<Numbers>::most_open_panels(setup);
  }
  PanelLenses& lenses_of(std::int64_t p) const { return own_.panels[p % at_once_]; }
  std::int64_t column_of(std::int64_t key) const { return lenses_.map_columns.of(key); }
  float* cell_of_block(const PanelLenses& seen, std::int64_t block, std::int64_t column) const {
    return seen.cells + (block / setup_.block_keys + column) * kPanelLanes;
  }
  void begin_cells(const Panel& panel, std::int64_t block, bool clear, PanelLenses& seen) const {
    const std::int64_t number = block / setup_.block_keys;
    std::copy_n(panel.maximum, kPanelLanes, seen.block_maximum + number * kPanelLanes);
    seen.block_seen[number] = 1;
    if (!clear) return;
    const std::int64_t last = column_of(std::min(block + setup_.block_keys, head_.kv_len) - 1);
    const std::int64_t first = column_of(block);
    std::fill_n(cell_of_block(seen, block, first), (last + 1 - first) * kPanelLanes, 0.0f);
  }

  HWY_INLINE void insert_hits(const float* scores, std::int64_t first_key, std::int64_t lane,
                              PanelLenses& seen) const {
    const Words words;
    top_.insert(scores, first_key, lane, hn::Load(words, own_.hits + lane),
                hn::Load(words, own_.hits + kPanelLanes + lane), seen);
  }

  /// Computes the sums and hits of a run and adds them.
  HWY_NOINLINE void look_at_run(const Panel& panel, std::int64_t block, std::int64_t first_key,
                                const Run& run, PanelLenses& seen) {
    const Floats d;
    const Vector scale = hn::Set(d, score_factor_);
    const Vector maximum = hn::Load(d, panel.maximum + run.lane);
    const Vector least = hn::Load(d, seen.top_least + run.lane);
    Vector sum = hn::Zero(d), exponents = sum, distances = sum, squares = sum, pooled = sum;
    Vector distance = hn::Set(d, run.first_distance);
    hn::Vec<Words> hits = hn::Zero(Words());
    const std::int64_t* column_end = &kNever;
    float* cell = own_.row;
    if (lenses_.map) {
      const std::int64_t column = column_of(block + first_key);
      column_end = own_.column_begin + column + 1;
      cell = cell_of_block(seen, block, column) + run.lane;
    }
    const bool most = lenses_.pool == Pool::kMax;
    const auto finish_cell = [&]() HWY_ATTR {
      const Vector before = hn::Load(d, cell);
      hn::Store(most ? hn::Max(before, pooled) : hn::Add(before, pooled), d, cell);
      pooled = hn::Zero(d);
    };
    if (!lenses_.map) hn::Store(hn::Zero(d), d, cell);
    hn::Store(hits, Words(), own_.hits + kPanelLanes + run.lane);
    for (std::int64_t k = 0; k < run.keys; ++k) {
      const Vector score = hn::Load(d, run.scores + k * kPanelLanes);
      const Vector x = exponent_of(scale, score, maximum);
      const Vector weight = Numbers::exact_weight(x);
      sum = hn::Add(sum, weight);
      exponents = hn::MulAdd(weight, hn::Max(x, hn::Set(d, kLeastExponent)), exponents);
      distances = hn::MulAdd(weight, distance, distances);
      squares = hn::MulAdd(weight, hn::Mul(distance, distance), squares);
      distance = hn::Add(distance, hn::Set(d, 1.0f));
      pooled = most ? hn::Max(pooled, weight) : hn::Add(pooled, weight);
      const __mmask16 above = _mm512_cmp_ps_mask(least.raw, score.raw, _CMP_LT_OQ);
      hits.raw = _mm512_mask_or_epi32(hits.raw, above, hits.raw,
                                      _mm512_set1_epi32(static_cast<int>(1u << k % 32)));
      if (k % 32 == 31) {
        hn::Store(hits, Words(), own_.hits + k / 32 * kPanelLanes + run.lane);
        hits = hn::Zero(Words());
      }
      if (block + first_key + k + 1 == *column_end) {
        finish_cell();
        cell += kPanelLanes;
        ++column_end;
      }
    }
    finish_cell();
    if (!lenses_.statistics) return;
    hn::Store(sum, d, own_.sums + run.lane);
    hn::Store(exponents, d, own_.exponents + run.lane);
    hn::Store(distances, d, own_.distances + run.lane);
    hn::Store(squares, d, own_.squares + run.lane);
    add_run(panel, run, seen);
  }

  /// Adds the sums of a run, which are about its middle, to those of the rows.
  HWY_INLINE void add_run(const Panel& panel, const Run& run, PanelLenses& seen) const {
    const Floats d;
    const Vector sum = hn::Load(d, own_.sums + run.lane);
    Vector distances = hn::Load(d, own_.distances + run.lane);
    Vector squares = hn::Load(d, own_.squares + run.lane);
    Vector centre = hn::Zero(d);
    const auto some = hn::Gt(sum, hn::Zero(d));
    const Vector per_sum = hn::IfThenElseZero(some, reciprocal(sum));
    Vector mean = hn::Mul(distances, per_sum);
    Vector variance = hn::NegMulAdd(mean, mean, hn::Mul(squares, per_sum));
    const auto narrow = hn::And(some, hn::Lt(variance, hn::Set(d, kLeastVariance)));
    if (!hn::AllFalse(d, narrow)) [[unlikely]] {
      // No bit of another row depends on it.
      centre = hn::IfThenElseZero(narrow, hn::Round(mean));
      Vector distances_again, squares_again;
      sum_about(panel, run, centre, distances_again, squares_again);
      distances = hn::IfThenElse(narrow, distances_again, distances);
      squares = hn::IfThenElse(narrow, squares_again, squares);
      mean = hn::Mul(distances, per_sum);
      variance = hn::NegMulAdd(mean, mean, hn::Mul(squares, per_sum));
    }
    const Vector about_mean = hn::Max(hn::Mul(variance, sum), hn::Zero(d));
    const Vector before = hn::Load(d, seen.sums + run.lane);
    const Vector all = hn::Add(before, sum);
    hn::Store(all, d, seen.sums + run.lane);
    const Vector per_all = hn::IfThenElseZero(some, reciprocal(all));
    Vector exponents = hn::Load(d, own_.exponents + run.lane);
    if (!hn::AllFalse(d, hn::IsNaN(exponents))) [[unlikely]] {
      exponents = sum_exponents(panel, run);
    }
    const hn::Half<Floats> h;
    const auto merge = [&](std::int64_t lane, const auto& half) HWY_ATTR {
      const hn::Repartition<double, Floats> dd;
      const auto promoted = [&](Vector x) HWY_ATTR { return hn::PromoteTo(dd, half(x)); };
      const auto at = hn::Add(hn::Add(hn::Set(dd, run.middle), promoted(centre)), promoted(mean));
      const auto old_mean = hn::Load(dd, seen.distances + lane);
      const auto shift = hn::Sub(at, old_mean);
      const auto old_sum = promoted(before), new_sum = promoted(sum);
      const auto both = hn::Add(old_sum, new_sum);
      const auto guess = promoted(per_all);
      const auto per_both = hn::MulAdd(guess, hn::NegMulAdd(both, guess, hn::Set(dd, 1.0)), guess);
      // From the mean with more weight, so that little weight far away costs no digits.
      const auto old_share = hn::Mul(old_sum, per_both), new_share = hn::Mul(new_sum, per_both);
      const auto new_mean =
          hn::IfThenElse(hn::Gt(new_sum, old_sum), hn::NegMulAdd(old_share, shift, at),
                         hn::MulAdd(new_share, shift, old_mean));
      const auto between =
          hn::MulAdd(hn::Mul(shift, shift), hn::Mul(new_share, old_sum), promoted(about_mean));
      hn::Store(new_mean, dd, seen.distances + lane);
      hn::Store(hn::Add(hn::Load(dd, seen.squares + lane), between), dd, seen.squares + lane);
      hn::Store(hn::Add(hn::Load(dd, seen.exponents + lane), promoted(exponents)), dd,
                seen.exponents + lane);
    };
    merge(run.lane, [&](Vector x) HWY_ATTR { return hn::LowerHalf(h, x); });
    merge(run.lane + kLanes / 2, [&](Vector x) HWY_ATTR { return hn::UpperHalf(h, x); });
  }
  /// Returns 1 / x with a relative error of a rounding or two.
  static HWY_INLINE Vector reciprocal(Vector x) {
    const Vector guess{_mm512_rcp14_ps(x.raw)};
    return hn::MulAdd(guess, hn::NegMulAdd(x, guess, hn::Set(Floats(), 1.0f)), guess);
  }
  /// Computes the sums about `centre`, a distance from the run's middle.
  HWY_NOINLINE void sum_about(const Panel& panel, const Run& run, Vector centre, Vector& distances,
                              Vector& squares) const {
    const Floats d;
    const Vector scale = hn::Set(d, score_factor_);
    const Vector maximum = hn::Load(d, panel.maximum + run.lane);
    distances = squares = hn::Zero(d);
    Vector distance = hn::Sub(hn::Set(d, run.first_distance), centre);
    for (std::int64_t k = 0; k < run.keys; ++k) {
      const Vector score = hn::Load(d, run.scores + k * kPanelLanes);
      const Vector product =
          hn::Mul(Numbers::exact_weight(exponent_of(scale, score, maximum)), distance);
      distances = hn::Add(distances, product);
      squares = hn::MulAdd(product, distance, squares);
      distance = hn::Add(distance, hn::Set(d, 1.0f));
    }
  }

  /// Computes the sum of 2^x x. The pipeline's is NaN where a score is -inf without a mask.
  HWY_NOINLINE Vector sum_exponents(const Panel& panel, const Run& run) const {
    const Floats d;
    const Vector scale = hn::Set(d, score_factor_);
    const Vector maximum = hn::Load(d, panel.maximum + run.lane);
    Vector sum = hn::Zero(d);
    for (std::int64_t k = 0; k < run.keys; ++k) {
      const Vector x = exponent_of(scale, hn::Load(d, run.scores + k * kPanelLanes), maximum);
      sum = hn::MulAdd(Numbers::exact_weight(x), hn::Max(x, hn::Set(d, kLeastExponent)), sum);
    }
    return sum;
  }

  void write_statistics(const Panel& panel, const PanelLenses& seen, const float* factors,
                        std::int64_t i) const {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    const std::int64_t row = panel.first_query + i;
    const double sum = static_cast<double>(panel.lse_sum[i]);
    const double own_sum = static_cast<double>(seen.sums[i]);
    const double factor = static_cast<double>(factors[i]);
    const bool none = !(sum > 0.0);
    double entropy = 0, maximum = 0, mean = kNan, variance = kNan, first = 0, offset = kNan;
    if (std::isnan(sum)) {
      entropy = maximum = first = kNan;
    } else if (!none) {
      maximum = static_cast<double>(own_.largest[i]);
      // A sink may have all of the weight.
      if (factor > 0.0) {
        entropy = -factor * (std::numbers::ln2_v<double> * seen.exponents[i] +
                             static_cast<double>(std::log(factors[i])) * own_sum);
      }
      entropy = std::max(entropy, 0.0) + 0.0;  // not -0
      mean = static_cast<double>(row + head_.origin.offset) - seen.distances[i];
      offset = seen.distances[i] - static_cast<double>(top_.largest_key(seen, i));
      variance = std::max(seen.squares[i] / own_sum, 0.0);
      first = static_cast<double>(own_.first[i]);
    }
    const HeadLenses& to = *head_.lenses;
    const auto write = [&](const OutputRows& rows, double number) {
      if (rows.data != nullptr) *rows.row_as<float>(row) = static_cast<float>(number);
    };
    write(to.entropy, entropy);
    write(to.maximum, maximum);
    write(to.mean_distance, mean);
    write(to.distance_variance, variance);
    write(to.mean_offset, offset);
    write(to.first_key, first);
    if (to.maximum_key.data != nullptr) {
      *to.maximum_key.row_as<std::int64_t>(row) =
          none ? -1 : head_.origin.key_start + top_.largest_key(seen, i);
    }
  }

  const ForwardSetup& setup_;
  const LensSetup& lenses_;
  const ForwardHead& head_;
  ForwardScratch& scratch_;
  LensScratch own_;
  const TopKeys top_;
  const MapCells cells_;
  const float score_factor_;
  const std::int64_t at_once_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
