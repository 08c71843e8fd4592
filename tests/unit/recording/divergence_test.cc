// SPDX-License-Identifier: Apache-2.0
//
// The divergence of two attentions, against its definition and closed forms.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/analysis.h"
#include "fovea/error.h"
#include "fovea/mask.h"
#include "fovea/random.h"

#include "recording/row_kernels.h"
#include "support/message_of.h"
#include "support/option_sets.h"
#include "support/random_problem.h"
#include "support/recorded.h"

namespace fovea::test {
namespace {

/// Returns the terms of one outcome, in float64.
double divergence_term(double p, double q) {
  double sum = 0.0;
  for (const double share : {p, q}) {
    if (share > 0.0) sum += 0.5 * share * std::log(2.0 * share / (p + q));
  }
  return sum;
}

/// Returns the Jensen-Shannon divergence of two rows by definition; what they lack to 1 is the
/// share of their sinks. NaN if either has no weight.
double divergence_by_definition(std::span<const double> p, std::span<const double> q) {
  double sum = 0.0, first = 0.0, second = 0.0;
  for (std::size_t j = 0; j < p.size(); ++j) {
    sum += divergence_term(p[j], q[j]);
    first += p[j];
    second += q[j];
  }
  if (first == 0.0 || second == 0.0) return std::nan("");
  return sum + divergence_term(std::max(1.0 - first, 0.0), std::max(1.0 - second, 0.0));
}

/// Returns the allowed error. A relative error e of p changes its term of the sum by at most
/// e p |ln(2p / (p + q))| / 2, and p |ln(2p / (p + q))| <= max(p ln 2, (p + q) / 2e). Both sums
/// together are at most 1.1 e. The oracle's sink, a difference to 1, and the sums add rounding.
double divergence_error(const RecordedAttention& a, const RecordedAttention& b) {
  return 1.1 * std::max(weight_error(a), weight_error(b)) + 0x1p-22;
}

void expect_divergence(const RecordedAttention& a, const RecordedAttention& b) {
  const AttentionDivergence found = attention_divergence(a, b);
  const OracleWeights first(a), second(b);
  const ProblemShape shape = a.shape();
  const double error = divergence_error(a, b);
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (std::int64_t head = 0; head < shape.q_heads; ++head) {
      double sum = 0.0, largest = 0.0;
      std::int64_t rows = 0;
      for (std::int64_t query = 0; query < shape.q_len; ++query) {
        const double expected =
            divergence_by_definition(first.row(batch, head, query), second.row(batch, head, query));
        const double got = found.rows.value({batch, head, query});
        ASSERT_EQ(std::isnan(got), std::isnan(expected)) << batch << " " << head << " " << query;
        if (std::isnan(expected)) continue;
        ASSERT_NEAR(got, expected, error) << batch << " " << head << " " << query;
        sum += expected;
        largest = std::max(largest, expected);
        ++rows;
      }
      if (rows == 0) {
        EXPECT_TRUE(std::isnan(found.mean.value({batch, head})));
        EXPECT_EQ(found.largest_query.at<std::int64_t>({batch, head}), -1);
        continue;
      }
      EXPECT_NEAR(found.mean.value({batch, head}), sum / static_cast<double>(rows), error);
      EXPECT_NEAR(found.largest.value({batch, head}), largest, error);
      const std::int64_t at = found.largest_query.at<std::int64_t>({batch, head});
      EXPECT_EQ(found.rows.value({batch, head, at}), found.largest.value({batch, head}));
    }
  }
}

RecordedAttention random_attention(const ProblemShape& shape, const AttentionOptions& options,
                                   std::uint64_t seed) {
  return recorded(stored_problem(shape, 16, 4, InputKind::kNormal, seed), options);
}

TEST(AttentionDivergence, MatchesTheDefinitionForAllOptions) {
  for (const OptionSet& set : option_sets()) {
    SCOPED_TRACE(set.name);
    expect_divergence(random_attention(kOptionShape, set.options, 1),
                      random_attention(kOptionShape, set.options, 2));
  }
}

TEST(AttentionDivergence, MatchesTheDefinitionForDifferentMasksAndHeads) {
  const ProblemShape shape{1, 4, 2, 230, 230};
  const ProblemShape other{1, 4, 4, 230, 230};
  expect_divergence(random_attention(shape, {.mask = causal()}, 1),
                    random_attention(other, {.mask = window(9, 3)}, 2));
  // The first queries see no key of either, of one, and of both.
  expect_divergence(random_attention({1, 2, 1, 9, 5}, {.mask = causal()}, 3),
                    random_attention({1, 2, 1, 9, 5}, {.mask = window(2, 1)}, 4));
  expect_divergence(
      random_attention({1, 2, 1, 9, 5}, {.mask = causal(), .score = {.sinks = {0.5, -1.0}}}, 3),
      random_attention({1, 2, 1, 9, 5}, {.mask = causal()}, 4));
}

TEST(AttentionDivergence, EqualAttentionsHaveNone) {
  const RecordedAttention attention = random_attention(
      {2, 3, 1, 210, 530}, {.mask = causal(), .score = {.sinks = {0.0, 1.0, 2.0}}}, 1);
  const AttentionDivergence found = attention_divergence(attention, attention);
  EXPECT_TRUE(all_are(found.rows, 0.0));
  EXPECT_TRUE(all_are(found.mean, 0.0));
  EXPECT_TRUE(all_are(found.largest, 0.0));
}

TEST(AttentionDivergence, DoesNotDependOnTheOrder) {
  const RecordedAttention a = random_attention(kOptionShape, {.mask = causal()}, 1);
  const RecordedAttention b = random_attention(kOptionShape, {.mask = window(100, 0)}, 2);
  EXPECT_TRUE(same_bits(attention_divergence(a, b).rows, attention_divergence(b, a).rows));
}

TEST(AttentionDivergence, IsLn2WithoutACommonKey) {
  const ProblemShape shape{1, 1, 1, 40, 40};
  const AttentionDivergence found =
      attention_divergence(random_attention(shape, {.mask = window(0, 0)}, 1),
                           random_attention(shape, {.mask = window(-1, -1) & prefix(1)}, 1));
  // Query 0 sees key 0 in both.
  EXPECT_EQ(found.rows.value({0, 0, 0}), 0.0);
  for (std::int64_t query = 1; query < 40; ++query) {
    EXPECT_NEAR(found.rows.value({0, 0, query}), std::numbers::ln2, 0x1p-20) << query;
  }
}

TEST(AttentionDivergence, SmallDifferencesKeepTheirPrecision) {
  // Two keys with weights 1/2 +- d have a divergence of about 2 d^2.
  const auto attention = [](double logit) {
    RandomProblem problem({1, 1, 1, 1, 2}, 1, 1);
    fill(problem.query, 1.0);
    set_value(problem.key, {0, 0, 0, 0}, logit);
    set_value(problem.key, {0, 0, 1, 0}, 0.0);
    for (Tensor* tensor : {&problem.query, &problem.key, &problem.value}) {
      *tensor = convert(*tensor, DType::kFloat32);
    }
    return recorded(std::move(problem), {});
  };
  // Weights of 1/2 +- x / 4.
  const double x = 0x1p-9;
  const double found = attention_divergence(attention(x), attention(0.0)).mean.value({0, 0});
  EXPECT_NEAR(found, x * x / 32.0, 1e-3 * x * x / 32.0);
}

TEST(AttentionDivergence, NanSpoilsTheHeadOnly) {
  RandomProblem problem = stored_problem({1, 2, 2, 30, 30}, 8, 8);
  set_value(problem.query, {0, 1, 7, 2}, std::nan(""));
  const RecordedAttention a = recorded(problem, {.mask = causal()});
  const RecordedAttention b = random_attention({1, 2, 2, 30, 30}, {.mask = causal()}, 2);
  const AttentionDivergence found = attention_divergence(a, b);
  EXPECT_FALSE(std::isnan(found.mean.value({0, 0})));
  EXPECT_TRUE(std::isnan(found.mean.value({0, 1})));
  EXPECT_TRUE(std::isnan(found.largest.value({0, 1})));
  EXPECT_EQ(found.largest_query.at<std::int64_t>({0, 1}), -1);
  EXPECT_TRUE(std::isnan(found.rows.value({0, 1, 7})));
  EXPECT_FALSE(std::isnan(found.rows.value({0, 1, 8})));
}

TEST(AttentionDivergence, AnyNumberOfThreadsGivesTheSameBits) {
  const RecordedAttention a = random_attention(kOptionShape, {.mask = causal()}, 1);
  const RecordedAttention b = random_attention(kOptionShape, {.mask = causal()}, 2);
  const AttentionDivergence one = attention_divergence(a, b, {.threads = 1});
  for (const int threads : {2, 3, 8}) {
    const AttentionDivergence more = attention_divergence(a, b, {.threads = threads});
    EXPECT_TRUE(same_bits(one.rows, more.rows));
    EXPECT_TRUE(same_bits(one.mean, more.mean));
    EXPECT_TRUE(same_bits(one.largest_query, more.largest_query));
  }
}

TEST(AttentionDivergence, RefusesWhatDoesNotFit) {
  const RecordedAttention a = random_attention({1, 2, 2, 10, 10}, {}, 1);
  const auto message = [&](const RecordedAttention& b) {
    return message_of([&] { attention_divergence(a, b); });
  };
  EXPECT_EQ(message(random_attention({1, 2, 2, 11, 10}, {}, 1)),
            "second: expected q_len 10 as the first attention has, got 11");
  EXPECT_EQ(message(random_attention({1, 1, 1, 10, 10}, {}, 1)),
            "second: expected q_heads 2 as the first attention has, got 1");
  RecordedAttention heads = a;
  heads.heads = {0, 5};
  EXPECT_EQ(message(heads),
            "second: expected head 1 of the model as the first attention has, got head 5");
  EXPECT_EQ(message({}), "query: expected [batch, q_heads, q_len, head_dim], got nothing");
  RecordedAttention short_lse = a;
  short_lse.lse = TensorRef(Tensor(DType::kFloat32, {1, 2, 9}));
  EXPECT_EQ(message(short_lse),
            "lse: expected [batch, q_heads, q_len] = [1, 2, 10], got [1, 2, 9]");
  RecordedAttention wide = a;
  wide.query = TensorRef(Tensor(DType::kFloat64, {1, 2, 10, 16}));
  EXPECT_EQ(message(wide), "query: expected float32, float16 or bfloat16, got float64");
}

TEST(AttentionDivergence, Stops) {
  const RecordedAttention a = random_attention({1, 2, 2, 300, 300}, {}, 1);
  std::stop_source source;
  source.request_stop();
  EXPECT_THROW(attention_divergence(a, a, {.stop = source.get_token()}), Stopped);
}

TEST(AttentionDivergence, TermsOfPairsAreAccurate) {
  // Each pair alone, so that errors do not average out.
  RandomState random(1);
  for (int i = 0; i < 20000; ++i) {
    const double size = std::exp(-20.0 * random.rand());
    const auto p = static_cast<float>(size);
    const double ratio = i % 3 == 0   ? 1.0 + 0x1p-12 * random.rand()
                         : i % 3 == 1 ? random.rand()
                                      : std::exp(-60.0 * random.rand());
    const auto q = static_cast<float>(size * ratio);
    const double expected = divergence_term(static_cast<double>(p), static_cast<double>(q));
    const double got = recording::divergence_of(&p, &q, 1).divergence;
    const auto difference = static_cast<double>(std::abs(p - q));
    // 2^-22 of the difference, or of the term itself if that is larger, plus subnormal numbers.
    ASSERT_NEAR(got, expected, 0x1p-22 * std::max(difference, expected) + 0x1p-140)
        << p << " " << q;
    ASSERT_GE(got, 0.0);
  }
  const float zero = 0.0f, one = 1.0f, nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(recording::divergence_of(&zero, &zero, 1).divergence, 0.0);
  EXPECT_NEAR(recording::divergence_of(&one, &zero, 1).divergence, 0.5 * std::numbers::ln2, 1e-7);
  EXPECT_TRUE(std::isnan(recording::divergence_of(&one, &nan, 1).divergence));
  EXPECT_TRUE(std::isnan(recording::divergence_of(&nan, &zero, 1).divergence));
}

}  // namespace
}  // namespace fovea::test
