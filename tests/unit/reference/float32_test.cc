// SPDX-License-Identifier: Apache-2.0
//
// The float32 reference, bit for bit against a float32 loop, and edge cases of float32 and float64:
// a bias of -inf added to biases of inf or NaN, and windows of any width.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/mask.h"
#include "fovea/random.h"
#include "fovea/reference.h"
#include "fovea/tensor.h"

#include "support/limits.h"
#include "support/random_problem.h"

namespace fovea::reference {
namespace {

using test::kInfinity;
using test::kNan;
using test::max_difference;
using test::RandomProblem;

// ---- Bit for bit --------------------------------------------------------------------------------

constexpr ProblemShape kFloat32Shape{2, 4, 2, 5, 8};
constexpr std::int64_t kFloat32HeadDim = 6;
constexpr std::int64_t kValueDim = 3;

struct Yardstick {
  std::vector<float> scores, scaled, softcapped, biased, masked, weights, row_sums, lse, context;
};

/// Computes every step in a float32 loop. `added`, if defined, has the full shape of the scores;
/// the causal mask is bottom-right aligned.
Yardstick lse_by_hand(const RandomProblem& p, double scale, double softcap, const Tensor& added,
                      bool is_causal, const std::vector<double>& sinks) {
  Yardstick y;
  const auto element = [](const Tensor& tensor, const Index& at) {
    return static_cast<float>(tensor.at<double>(at));
  };
  const float never = -std::numeric_limits<float>::infinity();
  const auto factor = static_cast<float>(scale);
  const auto cap = static_cast<float>(softcap);
  for_each_index(
      {kFloat32Shape.batch, kFloat32Shape.q_heads, kFloat32Shape.q_len}, [&](const Index& at) {
        const std::int64_t b = at[0], h = at[1], i = at[2];
        std::vector<bool> open;
        std::vector<float> row;
        for (std::int64_t j = 0; j < kFloat32Shape.kv_len; ++j) {
          float score = 0.0F;
          for (std::int64_t d = 0; d < kFloat32HeadDim; ++d)
            score += element(p.query, {b, h, i, d}) * element(p.key, {b, h / 2, j, d});
          y.scores.push_back(score);
          score *= factor;
          y.scaled.push_back(score);
          if (softcap > 0) score = cap * std::tanh(score / cap);
          y.softcapped.push_back(score);
          const float bias = added.defined() ? element(added, {b, h, i, j}) : 0.0F;
          score += bias;
          y.biased.push_back(score);
          open.push_back(bias != never &&
                         (!is_causal || j <= i + kFloat32Shape.kv_len - kFloat32Shape.q_len));
          row.push_back(open.back() ? score : never);
          y.masked.push_back(row.back());
        }
        float top = never;
        for (const float score : row) top = std::max(top, score);
        const float sink =
            sinks.empty() ? never : static_cast<float>(sinks[static_cast<std::size_t>(h)]);
        const bool empty = top == never;
        top = std::max(top, sink);
        float sum = 0.0F;
        for (std::size_t j = 0; j < row.size(); ++j) {
          if (open[j]) sum += std::exp(row[j] - top);
        }
        if (!sinks.empty()) sum += std::exp(sink - top);
        float row_sum = 0.0F;
        std::vector<float> mixed(static_cast<std::size_t>(kValueDim), 0.0F);
        for (std::size_t j = 0; j < row.size(); ++j) {
          const float weight = open[j] ? std::exp(row[j] - top) / sum : 0.0F;
          y.weights.push_back(weight);
          row_sum += weight;
          for (std::size_t d = 0; open[j] && d < mixed.size(); ++d)
            mixed[d] += weight * element(p.value, {b, h / 2, static_cast<std::int64_t>(j),
                                                   static_cast<std::int64_t>(d)});
        }
        y.row_sums.push_back(row_sum);
        y.lse.push_back(empty ? sink : top + std::log(sum));
        y.context.insert(y.context.end(), mixed.begin(), mixed.end());
      });
  return y;
}

std::int64_t floats_compared = 0;

void expect_bits(const char* step, const Tensor& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.defined(), !expected.empty()) << step;
  if (!found.defined()) return;
  ASSERT_EQ(found.dtype(), DType::kFloat32) << step;
  ASSERT_EQ(found.size(), static_cast<std::int64_t>(expected.size())) << step;
  int wrong = 0;
  for (std::size_t n = 0; n < expected.size(); ++n) {
    const float x = found.span<float>()[n];
    if (std::bit_cast<std::uint32_t>(x) != std::bit_cast<std::uint32_t>(expected[n])) ++wrong;
    ++floats_compared;
  }
  EXPECT_EQ(wrong, 0) << step << " of " << expected.size();
}

/// A bias, as score options for the library and as a tensor with one value per score.
struct Addition {
  std::string name;
  ScoreOptions score;
  Tensor full;
};

TEST(ReferenceFloat32, EveryStepMatchesAFloat32LoopBitForBit) {
  RandomState random(11);
  const Shape scores{kFloat32Shape.batch, kFloat32Shape.q_heads, kFloat32Shape.q_len,
                     kFloat32Shape.kv_len};
  Tensor bias = random.randn(scores);
  for (double& one : bias.span<double>()) one = random.randint(0, 6) == 0 ? -kInfinity : one;
  for (std::int64_t j = 0; j < kFloat32Shape.kv_len; ++j)
    bias.at<double>({1, 2, 3, j}) = -kInfinity;
  const Tensor table = random.randn({4, kFloat32Shape.q_heads});
  std::vector<Addition> additions(4);
  additions[1] = {"bias", {.bias = bias}, bias};
  additions[2] = {
      "alibi", {.alibi = Alibi{{0.1, 0.7, -0.3, 1.0 / 3.0}}}, Tensor(DType::kFloat64, scores)};
  additions[3] = {
      "table", {.relative = RelativeTable{table, false, 3}}, Tensor(DType::kFloat64, scores)};
  for_each_index(scores, [&](const Index& at) {
    const std::int64_t ahead = at[3] - (at[2] + kFloat32Shape.kv_len - kFloat32Shape.q_len);
    const auto distance = static_cast<float>(ahead < 0 ? -ahead : ahead);
    const auto slope =
        static_cast<float>(additions[2].score.alibi->slopes[static_cast<std::size_t>(at[1])]);
    const float product = slope * distance;  // rounded before it is added
    additions[2].full.at<double>(at) = static_cast<double>(-product);
    // Four buckets with a maximum distance of 3: 0, 1, 2 and all larger distances.
    const std::int64_t bucket = std::clamp<std::int64_t>(-ahead, 0, 3);
    additions[3].full.at<double>(at) = table.value({bucket, at[1]});
  });

  std::int64_t cases = 0;
  std::int64_t expected = 0;
  floats_compared = 0;
  for (const double magnitude : {1.0, 30.0}) {
    RandomProblem p(kFloat32Shape, kFloat32HeadDim, kValueDim, 12);
    for (Tensor* tensor : {&p.query, &p.key, &p.value}) {
      for (double& one : tensor->span<double>()) one *= magnitude;
    }
    for (const Addition& addition : additions) {
      for (const double softcap : {0.0, 1.7}) {
        for (const bool masked : {false, true}) {
          for (const std::vector<double>& sinks :
               {std::vector<double>(), {0.3, -1.1, 2.7, 0.1}, {1e4, 2e4, 3e4, 4e4}}) {
            SCOPED_TRACE(addition.name + ", case " + std::to_string(cases));
            AttentionOptions options{.mask = masked ? causal() : Mask(), .score = addition.score};
            options.score.softcap = softcap;
            options.score.sinks = sinks;
            const bool scaled = cases % 3 == 0;  // the other cases use the default scale
            if (scaled) options.score.scale = 0.3;
            const double scale = scaled ? 0.3 : 1.0 / std::sqrt(6.0);
            Yardstick y = lse_by_hand(p, scale, softcap, addition.full, masked, sinks);
            if (softcap == 0) y.softcapped.clear();
            if (!addition.full.defined()) y.biased.clear();
            if (!masked) y.masked.clear();
            const Steps steps =
                attention_steps(p.inputs(), options, {.arithmetic = DType::kFloat32});
            expect_bits("scores", steps.scores, y.scores);
            expect_bits("scaled", steps.scaled_scores, y.scaled);
            expect_bits("softcapped", steps.softcapped_scores, y.softcapped);
            expect_bits("biased", steps.biased_scores, y.biased);
            expect_bits("masked", steps.masked_scores, y.masked);
            expect_bits("weights", steps.weights, y.weights);
            expect_bits("row sums", steps.row_sums, y.row_sums);
            expect_bits("lse", steps.lse, y.lse);
            expect_bits("context", steps.context, y.context);
            const int steps_of_pairs =
                3 + (softcap > 0 ? 1 : 0) + (addition.full.defined() ? 1 : 0) + (masked ? 1 : 0);
            expected += 2 * 4 * 5 * (8 * steps_of_pairs + kValueDim + 2);
            ++cases;
          }
        }
      }
    }
  }
  EXPECT_EQ(cases, 2 * 4 * 2 * 2 * 3);
  EXPECT_EQ(floats_compared, expected);
}

// ---- A bias of -inf masks, whatever is added to it ----------------------------------------------

/// Returns options whose bias and table have the given values for keys one ahead of the query
/// (bucket 5 of 8).
AttentionOptions ahead_by_one(Tensor& bias, Tensor& table, double in_bias, double in_table) {
  for (std::int64_t i = 0; i < bias.extent(0); ++i) bias.at<double>({i, i + 1}) = in_bias;
  for (std::int64_t h = 0; h < table.extent(1); ++h) table.at<double>({5, h}) = in_table;
  return {.score = {.bias = bias, .alibi = Alibi{}, .relative = RelativeTable{table, true, 20}},
          .alignment = Alignment::top_left()};
}

TEST(ReferenceBias, MinusInfinityMasksWhateverOtherBiasesAdd) {
  RandomState random(21);
  const RandomProblem p({2, 4, 2, 3, 6}, 5, 3, 22);
  Tensor bias = random.randn({3, 6});
  Tensor table = random.randn({8, 4});
  Tensor open(DType::kBool, {3, 6});
  for_each_index(open.shape(), [&](const Index& at) { open.at<bool>(at) = at[1] != at[0] + 1; });
  int cases = 0;
  for (const DType arithmetic : {DType::kFloat64, DType::kFloat32}) {
    const ReferenceOptions how{.arithmetic = arithmetic};
    AttentionOptions masked = ahead_by_one(bias, table, 0.0, 0.0);
    masked.mask = dense(open);
    const Steps expected = attention_steps(p.inputs(), masked, how);
    for (const double other : {0.25, kInfinity, -kInfinity, kNan}) {
      for (const bool in_bias : {true, false}) {
        const AttentionOptions options =
            ahead_by_one(bias, table, in_bias ? -kInfinity : other, in_bias ? other : -kInfinity);
        const Steps steps = attention_steps(p.inputs(), options, how);
        EXPECT_EQ(max_difference(steps.biased_scores, expected.masked_scores), 0.0) << other;
        EXPECT_EQ(max_difference(steps.weights, expected.weights), 0.0) << other;
        EXPECT_EQ(max_difference(steps.row_sums, expected.row_sums), 0.0) << other;
        EXPECT_EQ(max_difference(steps.lse, expected.lse), 0.0) << other;
        EXPECT_EQ(max_difference(steps.context, expected.context), 0.0) << other;
        ++cases;
      }
    }
    // Without -inf added to it, NaN propagates as usual.
    const AttentionOptions visible = ahead_by_one(bias, table, kNan, 0.0);
    const Steps spread = attention_steps(p.inputs(), visible, how);
    EXPECT_TRUE(std::isnan(spread.lse.value({0, 0, 0})));
  }
  EXPECT_EQ(cases, 16);
}

// ---- Windows of any width -----------------------------------------------------------------------

TEST(Window, LargestWidthIsUnbounded) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const std::int64_t far = std::int64_t{1} << 40;
  std::int64_t compared = 0;
  for (const std::int64_t offset :
       {-far, std::int64_t{-3}, std::int64_t{0}, std::int64_t{3}, far}) {
    for (std::int64_t i = 0; i < 5; ++i) {
      for (std::int64_t j = 0; j < 7; ++j) {
        const ScorePosition at{0, 0, i, j, offset};
        for (const std::int64_t wide : {most, most - 1}) {
          EXPECT_EQ(window(0, wide).visible(at), j >= i + offset) << i << " " << j << " " << offset;
          EXPECT_EQ(window(wide, 0).visible(at), j <= i + offset) << i << " " << j << " " << offset;
          EXPECT_EQ(window(-1, wide).visible(at), true);
          EXPECT_EQ(window(wide, -1).visible(at), true);
          EXPECT_EQ(window(wide, wide).visible(at), true);
          compared += 5;
        }
      }
    }
  }
  EXPECT_EQ(compared, 5 * 5 * 7 * 2 * 5);

  const RandomProblem p({2, 4, 2, 5, 7}, 4, 3, 31);
  for (const auto& [wide, unbounded] :
       {std::pair(window(0, most), window(0, -1)), {window(most, 0), window(-1, 0)}}) {
    const Steps a = attention_steps(p.inputs(), {.mask = wide});
    const Steps b = attention_steps(p.inputs(), {.mask = unbounded});
    EXPECT_EQ(max_difference(a.masked_scores, b.masked_scores), 0.0);
    EXPECT_EQ(max_difference(a.context, b.context), 0.0);
  }
}

}  // namespace
}  // namespace fovea::reference
