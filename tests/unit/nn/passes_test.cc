// SPDX-License-Identifier: Apache-2.0
//
// Passes over elements (nn/passes.h): bitwise equal to plain loops for every vector width. CTest
// runs these tests on every SIMD target.

#include "nn/passes.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/random.h"
#include "fovea/tensor.h"

#include "problem/dropout.h"

namespace fovea::nn::passes {
namespace {

// kWidth exceeds two vectors and the lane count of the sums, and is a multiple of neither.
constexpr std::int64_t kWidth = 171, kRows = 5;

std::vector<float> normal(std::uint64_t seed, std::int64_t count) {
  RandomState random(seed);
  std::vector<float> result(static_cast<std::size_t>(count));
  for (float& number : result) number = static_cast<float>(random.randn());
  return result;
}

/// Returns whether Philox keeps element `number`. Each 16-bit half of a word decides one element;
/// the words of 16 consecutive counters are drawn together.
bool kept(const Dropout& rule, std::uint32_t threshold, std::int64_t number) {
  const std::int64_t within = number % kDrawnTogether, half = within / 16;
  const auto counter = static_cast<std::uint64_t>(number / kDrawnTogether * 16 + within % 16);
  const auto words = philox::words(
      {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0,
       rule.call},
      {static_cast<std::uint32_t>(rule.seed), static_cast<std::uint32_t>(rule.seed >> 32)});
  const std::uint32_t word = words[static_cast<std::size_t>(half / 2)];
  return (half % 2 == 0 ? word & 0xFFFF : word >> 16) >= threshold;
}

/// Sums in the order that the passes document: 32 lanes, and the remainder separately.
template <class Term>
float sum(std::int64_t count, const Term& term) {
  float lanes[32] = {}, total = 0;
  const std::int64_t whole = count / 32 * 32;
  for (std::int64_t i = 0; i < whole; ++i) lanes[i % 32] += term(i);
  for (std::int64_t i = whole; i < count; ++i) total += term(i);
  return std::accumulate(lanes, lanes + 32, total);
}

TEST(NnPasses, DropoutMatchesPhilox) {
  const Dropout rule{0.25, 0x123456789abcdefULL, 77};
  for (const bool relu : {false, true}) {
    for (const std::int64_t count : {1, 127, 128, 300}) {
      const std::vector<float> before = normal(1, count), past = normal(2, count);
      std::vector<float> after = before, with_past = before;
      std::vector<std::uint8_t> said(384, 2);
      table<float>().drop({rule, 1.5f, relu, after.data(), nullptr, said.data(), 0, count});
      table<float>().drop({rule, 1.5f, false, with_past.data(), past.data(), nullptr, 0, count});
      for (std::int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const bool keeps = kept(rule, 1 << 14, i);
        EXPECT_EQ(said[at], keeps ? 1 : 0) << i;
        EXPECT_EQ(after[at], keeps && !(relu && before[at] < 0) ? before[at] * 1.5f : 0) << i;
        EXPECT_EQ(with_past[at], past[at] + (keeps ? before[at] * 1.5f : 0)) << i;
      }
    }
  }
}

TEST(NnPasses, DropoutInPartsMatchesTheWhole) {
  const Dropout rule{0.5, 9, 3};
  const std::vector<double> ones(1000, 1.0);
  std::vector<double> whole = ones, parts = ones;
  table<double>().drop({rule, 2.0, false, whole.data(), nullptr, nullptr, 0, 1000});
  for (const std::int64_t begin : {0, 512}) {
    table<double>().drop(
        {rule, 2.0, false, parts.data(), nullptr, nullptr, begin, begin == 0 ? 512 : 1000});
  }
  EXPECT_EQ(whole, parts);
}

TEST(NnPasses, ReluKeepsNan) {
  std::vector<float> numbers(128, std::numeric_limits<float>::quiet_NaN());
  const Dropout rule{0.5, 9, 3};
  table<float>().drop({rule, 2.0f, true, numbers.data(), nullptr, nullptr, 0, 128});
  for (std::int64_t i = 0; i < 128; ++i) {
    EXPECT_EQ(std::isnan(numbers[static_cast<std::size_t>(i)]), kept(rule, 1 << 15, i)) << i;
  }
}

TEST(NnPasses, NormMatchesPlainLoops) {
  const std::vector<float> x = normal(1, kRows * kWidth), grad = normal(2, kRows * kWidth);
  const std::vector<float> weight = normal(3, kWidth), bias = normal(4, kWidth);
  const auto size = x.size(), width = static_cast<std::size_t>(kWidth);
  std::vector<float> normed(size), inverse(kRows), y(size), grad_x(size);
  std::vector<float> weights(width), biases(width);
  const Norm<float> norm{kWidth, 1e-5f, weight.data(), bias.data(), normed.data(), inverse.data()};
  table<float>().norm_forward(norm, x.data(), y.data(), 0, kRows);
  table<float>().norm_backward(norm, grad.data(), grad_x.data(), weights.data(), biases.data(), 0,
                               kRows);

  std::vector<float> expected_weights(width), expected_biases(width);
  constexpr auto kCount = static_cast<float>(kWidth);
  for (std::int64_t r = 0; r < kRows; ++r) {
    const float *from = x.data() + r * kWidth, *g = grad.data() + r * kWidth;
    const float mean = sum(kWidth, [&](std::int64_t c) { return from[c]; }) / kCount;
    const float variance =
        sum(kWidth, [&](std::int64_t c) { return (from[c] - mean) * (from[c] - mean); }) / kCount;
    const float scale = 1 / std::sqrt(variance + 1e-5f);
    EXPECT_EQ(inverse[static_cast<std::size_t>(r)], scale);
    const auto n = [&](std::int64_t c) { return (from[c] - mean) * scale; };
    const auto w = [&](std::int64_t c) { return g[c] * weight[static_cast<std::size_t>(c)]; };
    const float level = sum(kWidth, w) / kCount;
    const float stretch = sum(kWidth, [&](std::int64_t c) { return w(c) * n(c); }) / kCount;
    for (std::int64_t c = 0; c < kWidth; ++c) {
      const auto column = static_cast<std::size_t>(c),
                 at = static_cast<std::size_t>(r * kWidth + c);
      EXPECT_EQ(y[at], n(c) * weight[column] + bias[column]) << r << " " << c;
      EXPECT_EQ(grad_x[at], scale * (w(c) - level - n(c) * stretch)) << r << " " << c;
      expected_weights[column] += g[c] * n(c);
      expected_biases[column] += g[c];
    }
  }
  EXPECT_EQ(weights, expected_weights);
  EXPECT_EQ(biases, expected_biases);
}

TEST(NnPasses, AdamMatchesPlainLoops) {
  const AdamStep<float> step{0.9f, 0.99f, 0.01f, 1.25f, 1e-8f, 0.999f};
  const std::vector<float> gradient = normal(1, kWidth);
  std::vector<float> value = normal(2, kWidth), mean = normal(3, kWidth), square(gradient);
  for (float& number : square) number *= number;
  const std::vector<float> values = value, means = mean, squares = square;
  table<float>().adam(step, value.data(), gradient.data(), mean.data(), square.data(), kWidth);
  for (std::size_t i = 0; i < value.size(); ++i) {
    const float m = step.beta1 * means[i] + (1 - step.beta1) * gradient[i];
    const float v = step.beta2 * squares[i] + (1 - step.beta2) * gradient[i] * gradient[i];
    EXPECT_EQ(mean[i], m);
    EXPECT_EQ(square[i], v);
    EXPECT_EQ(value[i], step.keep * values[i] -
                            step.rate * m / (std::sqrt(v) * step.root_scale + step.epsilon));
  }
}

TEST(NnPasses, FirstOfTiedLogitsWins) {
  std::vector<float> logits(2 * kWidth);
  for (std::size_t at : {40u, 100u}) logits[at] = logits[static_cast<std::size_t>(kWidth) + at] = 3;
  const std::vector<std::int64_t> wanted{40, 100};
  std::vector<double> results(2 * kLossResults);
  table<float>().cross_entropy(
      {kWidth, kWidth, logits.data(), wanted.data(), -1, 0.0, results.data()}, 0, 2);
  EXPECT_EQ(results[1], 1.0);
  EXPECT_EQ(results[kLossResults + 1], 0.0);
  EXPECT_NEAR(results[0], std::log(2 * std::exp(3.0) + (kWidth - 2)) - 3, 1e-6);
}

}  // namespace
}  // namespace fovea::nn::passes
