// SPDX-License-Identifier: Apache-2.0
//
// Rounding of the reference's gradients: in float32 and the 16-bit types they match, bit for bit, a
// float32 loop that rounds where the header says; and their error against float64.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/mask.h"
#include "fovea/random.h"
#include "fovea/reference.h"
#include "fovea/tensor.h"

#include "problem/dropout.h"
#include "support/differences.h"
#include "support/exactness.h"
#include "support/random_problem.h"
#include "support/storage.h"

namespace fovea::test {
namespace {

using reference::Gradients;

constexpr ProblemShape kRoundingShape{2, 4, 2, 5, 8};
constexpr std::int64_t kRoundingHeadDim = 6, kRoundingValueDim = 3;

/// A problem and the gradients of its outputs, stored in one type.
struct Stored {
  RandomProblem p{kRoundingShape, kRoundingHeadDim, kRoundingValueDim, 12};
  Loss loss{kRoundingShape, kRoundingValueDim};

  explicit Stored(DType type) {
    for (Tensor* tensor : {&p.query, &p.key, &p.value, &loss.context}) {
      *tensor = convert(*tensor, type);
    }
    for (Tensor* tensor : {&loss.lse, &loss.weights}) *tensor = convert(*tensor, DType::kFloat32);
  }
};

float rounded(float x, DType type) {
  if (type == DType::kBFloat16) return static_cast<float>(BFloat16(x));
  if (type == DType::kFloat16) return static_cast<float>(Float16(x));
  return x;
}

float element(const Tensor& tensor, const Index& at) {
  return static_cast<float>(tensor.value(at));
}

/// Computes the gradients in float32 for a bottom-right causal mask and a bias per head and key.
Gradients gradients_by_hand(const Stored& s, const AttentionOptions& options, const Tensor& bias,
                            DType type) {
  const auto zeros = [](const Shape& shape) { return Tensor(DType::kFloat32, shape); };
  Gradients sums{zeros(s.p.query.shape()),
                 zeros(s.p.key.shape()),
                 zeros(s.p.value.shape()),
                 zeros(bias.shape()),
                 Tensor(),
                 zeros({kRoundingShape.q_heads})};
  const auto scale = static_cast<float>(1.0 / std::sqrt(6.0));
  const auto cap = static_cast<float>(options.score.softcap);
  for_each_index(
      {kRoundingShape.batch, kRoundingShape.q_heads, kRoundingShape.q_len}, [&](const Index& row) {
        const std::int64_t b = row[0], h = row[1], i = row[2], g = h / 2;
        const DropoutRule rule(options.dropout, b, h, kRoundingShape.q_heads);
        const auto factor = static_cast<float>(rule.factor());
        const std::int64_t keys = i + kRoundingShape.kv_len - kRoundingShape.q_len + 1;
        std::vector<float> capped, weights, gradient;
        const auto sink = static_cast<float>(options.score.sinks[static_cast<std::size_t>(h)]);
        float top = sink;
        for (std::int64_t j = 0; j < keys; ++j) {
          float score = 0.0F;
          for (std::int64_t d = 0; d < kRoundingHeadDim; ++d)
            score += element(s.p.query, {b, h, i, d}) * element(s.p.key, {b, g, j, d});
          score *= scale;
          capped.push_back(cap * std::tanh(score / cap));
          weights.push_back(capped.back() + element(bias, {h, 0, j}));
          top = std::max(top, weights.back());
        }
        float sum = 0.0F;
        for (float& x : weights) sum += x = std::exp(x - top);
        sum += std::exp(sink - top);
        const float lse = top + std::log(sum);
        float mean = 0.0F;
        for (std::int64_t j = 0; j < keys; ++j) {
          const float weight = weights[static_cast<std::size_t>(j)] /= sum;
          const float keeps = rule.keeps(i, j) ? factor : 0.0F;
          const float mixing = rounded(weight * keeps, type);
          float of_weight = 0.0F;
          for (std::int64_t d = 0; d < kRoundingValueDim; ++d) {
            const float of_context = element(s.loss.context, {b, h, i, d});
            sums.value.at<float>({b, g, j, d}) += mixing * of_context;
            of_weight += of_context * element(s.p.value, {b, g, j, d});
          }
          of_weight *= keeps;
          of_weight += element(s.loss.weights, {b, h, i, j});
          gradient.push_back(of_weight);
          mean += weight * of_weight;
        }
        const float of_lse = element(s.loss.lse, {b, h, i});
        sums.sinks.at<float>({h}) += std::exp(sink - lse) * (of_lse - mean);
        for (std::int64_t j = 0; j < keys; ++j) {
          const auto n = static_cast<std::size_t>(j);
          float x = weights[n] * (gradient[n] - mean + of_lse);
          sums.bias.at<float>({h, 0, j}) += x;
          x *= 1.0F - (capped[n] / cap) * (capped[n] / cap);
          x *= scale;
          x = rounded(x, type);
          for (std::int64_t d = 0; d < kRoundingHeadDim; ++d) {
            sums.query.at<float>({b, h, i, d}) += x * element(s.p.key, {b, g, j, d});
            sums.key.at<float>({b, g, j, d}) += x * element(s.p.query, {b, h, i, d});
          }
        }
      });
  for (Tensor* tensor : {&sums.query, &sums.key, &sums.value}) {
    for (float& x : tensor->span<float>()) x = rounded(x, type);
  }
  return sums;
}

class ReferenceGradientsRounding : public testing::TestWithParam<DType> {};

TEST_P(ReferenceGradientsRounding, MatchesAFloat32LoopBitForBit) {
  const Stored s(GetParam());
  const Tensor bias = RandomState(13).randn({kRoundingShape.q_heads, 1, kRoundingShape.kv_len});
  for (const Dropout& dropout : {Dropout{}, Dropout{.probability = 0.3, .seed = 5}}) {
    const AttentionOptions options{
        .mask = causal(),
        .score = {.softcap = 1.7, .bias = bias, .sinks = {0.3, -1.1, 2.7, 0.1}},
        .dropout = dropout};
    const Gradients found =
        attention_gradients(s.p.inputs(), s.loss.gradients(), options, {.arithmetic = GetParam()});
    const Gradients expected = gradients_by_hand(s, options, bias, GetParam());
    EXPECT_TRUE(same_bits(found.query, expected.query)) << "query";
    EXPECT_TRUE(same_bits(found.key, expected.key)) << "key";
    EXPECT_TRUE(same_bits(found.value, expected.value)) << "value";
    EXPECT_TRUE(same_bits(found.bias, expected.bias)) << "bias";
    EXPECT_TRUE(same_bits(found.sinks, expected.sinks)) << "sinks";
  }
}

TEST_P(ReferenceGradientsRounding, ErrorIsAFewRoundings) {
  const DType type = GetParam();
  const Stored s(type);
  const AttentionOptions options{.mask = causal(),
                                 .score = {.softcap = 3.0, .sinks = {0.3, -1.1, 2.7, 0.1}}};
  const Gradients exact = attention_gradients(s.p.inputs(), s.loss.gradients(), options);
  const Gradients found =
      attention_gradients(s.p.inputs(), s.loss.gradients(), options, {.arithmetic = type});
  for (Tensor Gradients::*part : {&Gradients::query, &Gradients::key, &Gradients::value}) {
    EXPECT_EQ((found.*part).dtype(), DType::kFloat32);
    const double error = max_difference(found.*part, exact.*part);
    EXPECT_GT(error, 0.01 * rounding_of(type));
    EXPECT_LT(error, 20 * rounding_of(type));  // the gradients are at most about 5
    // The last step rounds to the type.
    EXPECT_TRUE(same_bits(convert(convert(found.*part, type), DType::kFloat32), found.*part));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ReferenceGradientsRounding,
                         testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const testing::TestParamInfo<DType>& type) {
                           return std::string(dtype_name(type.param));
                         });

}  // namespace
}  // namespace fovea::test
