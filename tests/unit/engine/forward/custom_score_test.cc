// SPDX-License-Identifier: Apache-2.0
//
// The functions that fovea/custom_score.h makes of functors with and without a derivative, on the
// active target. score_test.cc tests that the engine computes them correctly.

#include "fovea/simd_targets.h"  // before Highway

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "unit/engine/forward/custom_score_test.cc"
#include <hwy/foreach_target.h>
// The include above compiles the rest of this file once per SIMD target.

#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include "fovea/custom_score.h"
#include "fovea/reference.h"

#include "kernels/simd/target.h"
#include "support/message_of.h"
#include "support/random_problem.h"

#ifndef FOVEA_TEST_CUSTOM_SCORE_PARAMETERS  // once, not once per target
#define FOVEA_TEST_CUSTOM_SCORE_PARAMETERS
namespace fovea::test {
struct Coefficients {
  double square, distance;
};
}  // namespace fovea::test
#endif

HWY_BEFORE_NAMESPACE();
namespace fovea::test::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// square score^2 + distance (query + offset - key) score
struct Square {
  Coefficients with;
  template <class D, class V>
  HWY_ATTR V operator()(D d, V score, const fovea::HWY_NAMESPACE::ScoreLanes<D>& at) const {
    return hn::Mul(score, hn::MulAdd(number(d, with.square), score, slope(d, at)));
  }
  template <class D, class V>
  HWY_ATTR V derivative(D d, V score, const fovea::HWY_NAMESPACE::ScoreLanes<D>& at) const {
    return hn::MulAdd(number(d, 2 * with.square), score, slope(d, at));
  }

 private:
  template <class D>
  HWY_INLINE hn::Vec<D> number(D d, double x) const {
    return hn::Set(d, static_cast<hn::TFromD<D>>(x));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> slope(D d, const fovea::HWY_NAMESPACE::ScoreLanes<D>& at) const {
    return hn::Mul(number(d, with.distance), hn::ConvertTo(d, at.distances()));
  }
};
FOVEA_SCORE_KERNELS(Square, Coefficients)

struct Plain {
  Coefficients with;
  template <class D, class V>
  HWY_ATTR V operator()(D d, V score, const fovea::HWY_NAMESPACE::ScoreLanes<D>&) const {
    return hn::Mul(hn::Set(d, static_cast<hn::TFromD<D>>(with.square)), score);
  }
};
FOVEA_SCORE_KERNELS_WITHOUT_DERIVATIVE(Plain, Coefficients)

}  // namespace fovea::test::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::test {

FOVEA_SCORE_FUNCTION(make_square, Square, Coefficients)
FOVEA_SCORE_FUNCTION_WITHOUT_DERIVATIVE(make_plain, Plain, Coefficients)

namespace {

constexpr Coefficients kCoefficients{0.25, -0.5};
constexpr ScorePosition kFirst{1, 2, 10, 7, -4};

double expected(double score, const ScorePosition& at, bool derivative) {
  const double slope = -0.5 * static_cast<double>(at.query + at.offset - at.key);
  return derivative ? 0.5 * score + slope : (0.25 * score + slope) * score;
}

TEST(CustomScore, OneEvaluatesFunctorAndDerivativeInDouble) {
  kernels::choose_target();
  const CustomScore square = make_square(kCoefficients);
  for (const double score : {-3.5, 0.0, 0.75, 20.0}) {
    EXPECT_EQ(square.one(square.state.get(), score, kFirst), expected(score, kFirst, false));
    EXPECT_EQ(square.one_derivative(square.state.get(), score, kFirst),
              expected(score, kFirst, true));
  }
}

TEST(CustomScore, TilesApplyFunctorOrDerivativeTimesFactor) {
  kernels::choose_target();
  const CustomScore square = make_square(kCoefficients);
  constexpr std::int64_t kKeys = 3, kStride = 20;
  for (std::int64_t lanes = 1; lanes <= kStride; ++lanes) {
    for (const bool derivative : {false, true}) {
      // Sums of few powers of two are exact in any order.
      std::vector<float> scores(kKeys * kStride);
      for (std::size_t n = 0; n < scores.size(); ++n) {
        scores[n] = 0.25F * static_cast<float>(n) - 5.0F;
      }
      const std::vector<float> before = scores;
      const ScoreTile tile{.scores = scores.data(),
                           .stride = kStride,
                           .keys = kKeys,
                           .lanes = lanes,
                           .first = kFirst,
                           .factor = 0.5F};
      (derivative ? square.tile_derivative : square.tile)(square.state.get(), tile);
      for (std::int64_t k = 0; k < kKeys; ++k) {
        for (std::int64_t i = 0; i < kStride; ++i) {
          const auto n = static_cast<std::size_t>(k * kStride + i);
          ScorePosition at = kFirst;
          at.key += k;
          at.query += i;
          const double score = static_cast<double>(before[n]);
          const double right = i < lanes ? 0.5 * expected(score, at, derivative) : score;
          ASSERT_EQ(static_cast<double>(scores[n]), right) << lanes << " lanes, " << k << ", " << i;
        }
      }
    }
  }
}

TEST(CustomScore, NoGradientsWithoutADerivative) {
  kernels::choose_target();
  const CustomScore plain = make_plain(kCoefficients);
  EXPECT_EQ(plain.one(plain.state.get(), 3.0, kFirst), 0.75);
  EXPECT_NE(plain.tile, nullptr);
  EXPECT_EQ(plain.tile_derivative, nullptr);
  EXPECT_EQ(plain.one_derivative, nullptr);
  const RandomProblem problem({1, 1, 1, 2, 3}, 4, 5);
  const AttentionOptions options{.score = {.custom = plain}};
  EXPECT_EQ(message_of([&] { reference::attention_gradients(problem.inputs(), {}, options); }),
            "custom: expected a function with its derivative, got one without");
}

}  // namespace
}  // namespace fovea::test
#endif
