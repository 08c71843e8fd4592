// SPDX-License-Identifier: Apache-2.0
//
// exp, tanh and the logistic function in float32, compared with the C library's in float64.

#include "nn/elementary.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace fovea::nn {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

/// Returns the largest error in float32 ulps.
template <class Function>
double worst_units(double first, double last, const Function& pair) {
  constexpr int kPoints = 200'000;
  double worst = 0.0;
  for (int i = 0; i <= kPoints; ++i) {
    const auto x = static_cast<float>(first + (last - first) * i / kPoints);
    const auto [found, exact] = pair(x);
    const float place = std::nextafter(std::abs(static_cast<float>(exact)), kInf) -
                        std::abs(static_cast<float>(exact));
    worst = std::max(worst, std::abs(double{found} - exact) / double{place});
  }
  return worst;
}

TEST(NnElementary, ExpIsWithinTwoUlps) {
  const auto pair = [](float x) { return std::pair(elementary::exp(x), std::exp(double{x})); };
  EXPECT_LE(worst_units(-87.0, 88.0, pair), 2.0);
  EXPECT_LE(worst_units(-1.0, 1.0, pair), 2.0);
  EXPECT_EQ(elementary::exp(0.0f), 1.0f);
  EXPECT_LE(elementary::exp(-kInf), 1.7e-38f);
  EXPECT_LE(elementary::exp(-1e6f), 1.7e-38f);
  EXPECT_GE(elementary::exp(1e6f), 1.6e38f);
  EXPECT_TRUE(std::isfinite(elementary::exp(kInf)));
  EXPECT_TRUE(std::isnan(elementary::exp(kNan)));
}

TEST(NnElementary, TanhIsWithinFourUlps) {
  const auto pair = [](float x) { return std::pair(elementary::tanh(x), std::tanh(double{x})); };
  for (const double bound : {30.0, 3.0, 0.5, 1e-3, 1e-20}) {
    EXPECT_LE(worst_units(-bound, bound, pair), 4.0) << bound;
  }
  EXPECT_EQ(elementary::tanh(kInf), 1.0f);
  EXPECT_EQ(elementary::tanh(-kInf), -1.0f);
  EXPECT_EQ(elementary::tanh(0.0f), 0.0f);
  EXPECT_TRUE(std::signbit(elementary::tanh(-0.0f)));
  EXPECT_TRUE(std::isnan(elementary::tanh(kNan)));
}

TEST(NnElementary, SigmoidIsWithinFourUlps) {
  const auto pair = [](float x) {
    return std::pair(elementary::sigmoid(x), 1.0 / (1.0 + std::exp(-double{x})));
  };
  EXPECT_LE(worst_units(-86.0, 86.0, pair), 4.0);
  EXPECT_EQ(elementary::sigmoid(0.0f), 0.5f);
  EXPECT_EQ(elementary::sigmoid(kInf), 1.0f);
  EXPECT_LE(elementary::sigmoid(-kInf), 1e-37f);
  EXPECT_TRUE(std::isnan(elementary::sigmoid(kNan)));
}

}  // namespace
}  // namespace fovea::nn
