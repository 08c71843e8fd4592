// SPDX-License-Identifier: Apache-2.0
//
// The online softmax of the forward pass (forward-inl.h): weights relative to a running maximum,
// and the factors that remain when all keys of a panel are seen.

#if defined(FOVEA_KERNELS_FORWARD_RUNNING_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_FORWARD_RUNNING_SOFTMAX_INL_H_
#undef FOVEA_KERNELS_FORWARD_RUNNING_SOFTMAX_INL_H_
#else
#define FOVEA_KERNELS_FORWARD_RUNNING_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>

#include <hwy/highway.h>

#include "fovea/simd_math-inl.h"

#include "kernels/forward/forward.h"
#include "kernels/simd/log-inl.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/tile/dropout-inl.h"
#include "kernels/tile/score-inl.h"
#include "kernels/tile/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// The softmax of one work item. `Keys` is that of ItemPass. If kOwnLensFactor, lenses have other
/// factors than contexts, those of exact weights.
template <class Keys, bool kOwnLensFactor>
class RunningSoftmax {
 public:
  using Arithmetic = typename Keys::Arithmetic;

  RunningSoftmax(const ForwardSetup& setup, const ForwardHead& head, ForwardScratch& scratch,
                 float score_factor)
      : score_(setup.options->score),
        head_(head),
        scratch_(scratch),
        dropout_(dropout_of(setup, head)),
        score_factor_(score_factor) {}

  /// Computes maximum = max(maximum, block_maximum), factor = 2^(old - new) and sum *= factor.
  void raise(const Panel& panel) {
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
  template <int kVectors>
  HWY_INLINE void compute_weights(const Panel& panel, std::int64_t block, const Segment& segment) {
    if (dropout_) {
      compute<kVectors, true>(panel, block, segment);
    } else {
      compute<kVectors, false>(panel, block, segment);
    }
  }

  /// Adds the sums of a block to those of the panel.
  void add_block_sums(const Panel& panel) {
    const Floats d;
    for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
      hn::Store(hn::Add(hn::Load(d, panel.sum + lane), hn::Load(d, scratch_.block_sum + lane)), d,
                panel.sum + lane);
    }
  }

  /// Computes the factors of the rows' contexts, 1 / sum or 0 for a row without a visible key, with
  /// the share of a sink, and writes lse.
  void finish(const Panel& panel) {
    if (!score_.sinks.empty()) return normalize_with_sink(panel);
    normalize(panel);
    if (head_.lse.data != nullptr) write_lse(panel);
  }
  /// The factors of the lenses' sums.
  float* lens_factor() const { return kOwnLensFactor ? scratch_.block_lse_sum : scratch_.factor; }

  std::optional<DropoutLanes>& dropout() { return dropout_; }

 private:
  static constexpr double kLn2 = std::numbers::ln2_v<double>;

  template <int kVectors, bool kDropout>
  HWY_INLINE void compute(const Panel& panel, std::int64_t block, const Segment& segment) {
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
      Vector weight[2][kVectors];
      HWY_UNROLL(2)
      for (int i = 0; i < 2; ++i) {
        Vector x[kVectors];
        HWY_UNROLL(3)
        for (int v = 0; v < kVectors; ++v) {
          const Vector score = hn::Load(d, scores + (k + i) * kPanelLanes + v * kLanes);
          // Subtract before multiplying: for huge scores, the rounding error of factor * maximum
          // exceeds the range of exponents.
          const Vector below = hn::Sub(score, maximum[v]);
          x[v] = Arithmetic::kScalesQueries ? below : hn::Mul(factor, below);
        }
        Arithmetic::template exp2_of_nonpositive<kVectors>(x, weight[i]);
        HWY_UNROLL(3)
        for (int v = 0; v < kVectors; ++v) {
          sum[v] = hn::Add(sum[v], weight[i][v]);
          if constexpr (kDropout) {
            const float* kept = scratch_.kept + (k % kTileRows + i) * kPanelLanes + v * kLanes;
            weight[i][v] = hn::Mul(weight[i][v], hn::Load(d, kept));
          }
        }
      }
      HWY_UNROLL(3)
      for (int v = 0; v < kVectors; ++v) {
        Arithmetic::store_weights(weight[0][v], weight[1][v], weights + v * kLanes, k);
      }
    }
    HWY_UNROLL(3)
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sum[v], d, scratch_.block_sum + lane + v * kLanes);
    }
  }

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

  /// Returns the exponent of 2 that the weights of a row are relative to.
  double reference(const Panel& panel, std::int64_t lane) const {
    const double maximum = Keys::reference(panel.maximum[lane], score_factor_);
    // A saturated maximum was already -FLT_MAX, or nearly, before the factor log2(e).
    return panel.maximum[lane] == kLowest ? maximum / kLn2 : maximum;
  }

  /// Writes lse of all rows. Logarithms are computed by vectors, because scalar ones took up to a
  /// tenth of a call with few keys.
  void write_lse(const Panel& panel) {
    const hn::CappedTag<double, (kLanes + 1) / 2> d;
    const hn::Rebind<float, decltype(d)> floats;
    alignas(64) double logarithms[kPanelLanes];
    for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += hn::MaxLanes(d)) {
      const auto sums = hn::PromoteTo(d, hn::Load(floats, panel.lse_sum + lane));
      hn::Store(log_of_positive(d, sums), d, logarithms + lane);
    }
    for (std::int64_t lane = 0; lane < panel.rows; ++lane) {
      const float sum = panel.lse_sum[lane];
      // std::log returns -inf for 0, the sum of a row without a visible key.
      const bool positive = sum > 0.0f && sum <= std::numeric_limits<float>::max();
      const double logarithm = positive ? logarithms[lane] : std::log(static_cast<double>(sum));
      head_.lse_of(panel.first_query + lane) =
          static_cast<float>(reference(panel, lane) * kLn2 + logarithm);
    }
  }

  void normalize_with_sink(const Panel& panel) {
    const double sink_logit = score_.sinks[static_cast<std::size_t>(head_.origin.head)];
    for (std::int64_t lane = 0; lane < panel.rows; ++lane) {
      double maximum = reference(panel, lane);
      double sum = static_cast<double>(panel.sum[lane]);
      double lse_sum = static_cast<double>(panel.lse_sum[lane]);
      double shrink = 1.0;
      if (std::isfinite(sink_logit)) {
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

  const ScoreOptions& score_;
  const ForwardHead& head_;
  ForwardScratch& scratch_;
  std::optional<DropoutLanes> dropout_;
  const float score_factor_;  // the softmax multiplies scores by it
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_FORWARD_RUNNING_SOFTMAX_INL_H_
