// SPDX-License-Identifier: Apache-2.0
//
// The stages of decoding between the first product and the softmax, for one row of scores.
// kernels/tile/stages-inl.h has those of tiles. The results are multiplied by log2(e).

#if defined(FOVEA_KERNELS_DECODE_ROW_STAGES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_DECODE_ROW_STAGES_INL_H_
#undef FOVEA_KERNELS_DECODE_ROW_STAGES_INL_H_
#else
#define FOVEA_KERNELS_DECODE_ROW_STAGES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>

#include "fovea/simd_math-inl.h"

#include "kernels/decode/decode.h"
#include "kernels/decode/scratch-inl.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/tile/bias_numbers-inl.h"
#include "kernels/tile/position_bias.h"
#include "problem/query_factor.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// The score of a hidden key.
constexpr float kHidden = -std::numeric_limits<float>::infinity();
constexpr float kLowestScore = std::numeric_limits<float>::lowest();

/// Applies the stages to rows of one item: scale, softcap, custom function, biases, mask.
class RowStages {
 public:
  /// If `queries_are_scaled`, query_factor() is applied to the queries, otherwise to the scores.
  RowStages(const DecodeSetup& setup, const DecodeItem& item, const DecodeScratch& scratch,
            bool queries_are_scaled)
      : setup_(setup),
        item_(item),
        score_(setup.options->score),
        mask_(setup.options->mask),
        scratch_(scratch),
        scores_are_scaled_(queries_are_scaled) {}

  float query_factor() const { return fovea::query_factor(score_, setup_.scale); }

  /// Applies the stages to the scores of row `row` and `count` keys, starting at key `first`.
  /// Scores of hidden keys become -inf. `scores` has room for whole vectors.
  void run(float* scores, std::int64_t row, std::int64_t first, std::int64_t count) const {
    const bool custom = score_.custom.tile != nullptr;
    const Floats d;
    if (!scores_are_scaled_) {
      const Vector scale = hn::Set(d, query_factor());
      for (std::int64_t k = 0; k < count; k += kLanes) {
        hn::Store(hn::Mul(scale, hn::Load(d, scores + k)), d, scores + k);
      }
    }
    if (score_.softcap > 0) {
      const double factor = score_.softcap * (custom ? 1.0 : kLog2E);
      const fovea::HWY_NAMESPACE::simd_math::Tanh<Floats> tanh(d, static_cast<float>(factor));
      for (std::int64_t k = 0; k < count; k += kLanes) {
        hn::Store(tanh(hn::Load(d, scores + k)), d, scores + k);
      }
    }
    if (custom) {
      score_.custom.tile(score_.custom.state.get(), {.scores = scores,
                                                     .stride = 1,
                                                     .keys = count,
                                                     .lanes = 1,
                                                     .first = item_.place(row, first),
                                                     .factor = static_cast<float>(kLog2E)});
    }
    if (score_.alibi.has_value() || score_.relative.has_value()) {
      add_position_bias(scores, row, first, count);
    }
    if (score_.bias.defined()) add_bias(scores, row, first, count);
    hide(scores, row, first, count);
  }

 private:
  void add_position_bias(float* scores, std::int64_t row, std::int64_t first,
                         std::int64_t count) const {
    const ScorePosition at = item_.place(row, first);
    // Distances decrease with the key index, so by_distance is read backwards.
    const std::int64_t last_distance = at.query + at.offset - (first + count - 1);
    fill_position_bias(score_, at.head, setup_.q_heads, last_distance,
                       {scratch_.by_distance, static_cast<std::size_t>(count)});
    const float* const last = scratch_.by_distance + count - 1;
    const Floats d;
    std::int64_t k = 0;
    for (; k + kLanes <= count; k += kLanes) {
      const Vector biases = hn::Reverse(d, hn::LoadU(d, last - k - (kLanes - 1)));
      hn::Store(with_bias(d, hn::Load(d, scores + k), biases), d, scores + k);
    }
    for (; k < count; ++k) add_one_bias(scores[k], *(last - k));
  }

  void add_bias(float* scores, std::int64_t row, std::int64_t first, std::int64_t count) const {
    const TensorView& bias = score_.bias;
    const BiasRows& rows = item_.bias;
    const std::int64_t at = rows.offset + row / item_.q_len * rows.head_stride +
                            row % item_.q_len * rows.query_stride + first * rows.key_stride;
    const auto add = [&](const auto* numbers) HWY_ATTR {
      const Floats d;
      const auto scaled = [](auto tag, auto number) HWY_ATTR {
        const auto hidden = hn::Set(tag, kHidden);
        const auto x = hn::Mul(number, hn::Set(tag, static_cast<float>(kLog2E)));
        // Only -inf masks; a finite bias does not, however low.
        return hn::IfThenElse(hn::Eq(number, hidden), hidden, at_least_lowest(tag, x));
      };
      numbers += at;
      std::int64_t k = 0;
      for (; rows.key_stride == 1 && k + kLanes <= count; k += kLanes) {
        const Vector biases = scaled(d, bias_numbers(numbers + k));
        hn::Store(with_bias(d, hn::Load(d, scores + k), biases), d, scores + k);
      }
      const One one;
      for (; k < count; ++k) {
        const float number = bias_number(numbers[k * rows.key_stride]);
        add_one_bias(scores[k], hn::GetLane(scaled(one, hn::Set(one, number))));
      }
    };
    with_bias_type(bias.dtype(),
                   [&](auto* type) { add(static_cast<decltype(type)>(bias.data())); });
  }
  using One = hn::CappedTag<float, 1>;  // for keys that do not fill a vector
  /// Returns score + bias. If either is -inf, the key is hidden, even if the other is NaN. The sum
  /// of two finite numbers is never -inf.
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V with_bias(D d, V score, V bias) {
    const V hidden = hn::Set(d, kHidden);
    const auto hides = hn::Or(hn::Eq(score, hidden), hn::Eq(bias, hidden));
    return hn::IfThenElse(hides, hidden, at_least_lowest(d, hn::Add(score, bias)));
  }
  static HWY_INLINE void add_one_bias(float& score, float bias) {
    const One one;
    score = hn::GetLane(with_bias(one, hn::Set(one, score), hn::Set(one, bias)));
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V at_least_lowest(D d, V x) {
    return fovea::HWY_NAMESPACE::simd_math::at_least(d, kLowestScore, x);
  }

  void hide(float* scores, std::int64_t row, std::int64_t first, std::int64_t count) const {
    if (mask_.allows_all()) return;
    const KeyRange& seen = scratch_.ranges[row];
    const std::int64_t begin = std::clamp<std::int64_t>(seen.begin - first, 0, count);
    const std::int64_t end = std::clamp<std::int64_t>(seen.end - first, begin, count);
    std::fill(scores, scores + begin, kHidden);
    std::fill(scores + end, scores + count, kHidden);
    if (seen.exact || begin == end) return;
    mask_.fill(item_.place(row, first + begin), end - begin, scratch_.visible);
    for (std::int64_t k = begin; k < end; ++k) {
      if (scratch_.visible[k - begin] == 0) scores[k] = kHidden;
    }
  }

  static constexpr double kLog2E = std::numbers::log2e_v<double>;

  const DecodeSetup& setup_;
  const DecodeItem& item_;
  const ScoreOptions& score_;
  const Mask& mask_;
  const DecodeScratch& scratch_;
  const bool scores_are_scaled_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_DECODE_ROW_STAGES_INL_H_
