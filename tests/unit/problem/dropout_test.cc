// SPDX-License-Identifier: Apache-2.0
//
// Dropout: its random numbers against published values, their statistics, and the weights that
// the reference drops.

#include "problem/dropout.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/half.h"
#include "fovea/reference.h"

#include "support/exactness.h"
#include "support/random_problem.h"

namespace fovea {
namespace {

using test::RandomProblem;

// ---- Random numbers -----------------------------------------------------------------------------

TEST(Philox, MatchesThePublishedWords) {
  // Known answers from Random123's kat_vectors: philox4x32 with 10 rounds.
  using Words = std::array<std::uint32_t, 4>;
  const std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
  EXPECT_EQ(philox::words({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox::words({most, most, most, most}, {most, most}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox::words({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(DropoutRule, CounterHoldsFourKeysQueryHeadAndCall) {
  const Dropout dropout{.probability = 0.25, .seed = 0x0123456789abcdef, .call = 77};
  const DropoutRule rule(dropout, 3, 2, 8);
  EXPECT_EQ(rule.threshold(), std::uint32_t{1} << 30);
  EXPECT_EQ(rule.factor(), 4.0 / 3.0);
  EXPECT_EQ(rule.key(), (std::array<std::uint32_t, 2>{0x89abcdef, 0x01234567}));
  EXPECT_EQ(rule.counter(5, 40), (std::array<std::uint32_t, 4>{10, 5, 26, 77}));
  for (std::int64_t key = 40; key < 44; ++key) {
    const auto words = philox::words({10, 5, 26, 77}, {0x89abcdef, 0x01234567});
    EXPECT_EQ(rule.keeps(5, key), words[static_cast<std::size_t>(key - 40)] >= 1U << 30) << key;
  }
}

TEST(DropoutRule, PartsKeepTheWeightsOfTheWhole) {
  Dropout dropout{.probability = 0.5, .seed = 9};
  const DropoutRule whole(dropout, 1, 1, 2);
  dropout.first_query = 30;
  for (dropout.first_key = 0; dropout.first_key < 9; ++dropout.first_key) {
    const DropoutRule part(dropout, 1, 1, 2);
    for (std::int64_t key = 0; key < 16; ++key) {
      EXPECT_EQ(part.keeps(7, key), whole.keeps(37, dropout.first_key + key)) << key;
    }
  }
}

TEST(DropoutRule, ProbabilityHas32Bits) {
  const auto threshold = [](double probability) {
    return DropoutRule({.probability = probability}, 0, 0, 1).threshold();
  };
  EXPECT_EQ(threshold(0x1p-33), 0U);
  EXPECT_EQ(threshold(0x1p-32), 1U);
  EXPECT_EQ(threshold(0.5), 0x80000000U);
  EXPECT_EQ(threshold(std::nextafter(1.0, 0.0)), 0xffffffffU);
}

// ---- Randomness ---------------------------------------------------------------------------------

/// Returns four standard deviations of the number of elements kept out of `count`.
double four_sigma(double count, double probability) {
  return 4.0 * std::sqrt(count * probability * (1.0 - probability));
}

TEST(DropoutRule, KeepsTheExpectedShareOfTenMillion) {
  std::uint64_t seed = 1;
  for (const double probability : {0.1, 0.5, 0.9}) {
    const DropoutRule rule({.probability = probability, .seed = seed++}, 0, 0, 1);
    std::int64_t kept = 0;
    for (std::int64_t query = 0; query < 2000; ++query) {
      for (std::int64_t key = 0; key < 5000; ++key) kept += rule.keeps(query, key) ? 1 : 0;
    }
    const double expected = 1e7 * (1.0 - probability);
    EXPECT_NEAR(static_cast<double>(kept), expected, four_sigma(1e7, probability)) << probability;
  }
}

constexpr std::int64_t kQueries = 400, kKeys = 700;

/// Returns 1 for each kept weight and 0 for each dropped one, as [queries, keys].
std::vector<int> kept(const Dropout& dropout, std::int64_t item = 0, std::int64_t head = 0) {
  const DropoutRule rule(dropout, item, head, 4);
  std::vector<int> result;
  for (std::int64_t query = 0; query < kQueries; ++query) {
    for (std::int64_t key = 0; key < kKeys; ++key) result.push_back(rule.keeps(query, key) ? 1 : 0);
  }
  return result;
}

TEST(DropoutRule, RowsAndColumnsKeepTheExpectedShare) {
  for (const double probability : {0.1, 0.5, 0.9}) {
    const std::vector<int> of = kept({.probability = probability, .seed = 5});
    // The sum of squared deviations, divided by their variance, follows a chi-squared distribution,
    // whose mean is the number of lines and whose variance is twice that number.
    const auto spread = [&](std::int64_t lines, std::int64_t length, std::int64_t line_step,
                            std::int64_t step) {
      double sum = 0.0;
      for (std::int64_t line = 0; line < lines; ++line) {
        int count = 0;
        for (std::int64_t n = 0; n < length; ++n)
          count += of[static_cast<std::size_t>(line * line_step + n * step)];
        const double deviation = count - static_cast<double>(length) * (1.0 - probability);
        sum += deviation * deviation /
               (static_cast<double>(length) * probability * (1.0 - probability));
      }
      return sum;
    };
    EXPECT_NEAR(spread(kQueries, kKeys, kKeys, 1), kQueries, 4.0 * std::sqrt(2.0 * kQueries));
    EXPECT_NEAR(spread(kKeys, kQueries, 1, kKeys), kKeys, 4.0 * std::sqrt(2.0 * kKeys));
  }
}

TEST(DropoutRule, NeighboursAreUncorrelated) {
  for (const double probability : {0.1, 0.5, 0.9}) {
    const Dropout dropout{.probability = probability, .seed = 6, .call = 9};
    const std::vector<int> of = kept(dropout);
    // The sum of products of deviations must be within four standard deviations of 0.
    const auto expect_uncorrelated = [&](const std::vector<int>& other, std::int64_t lag) {
      double sum = 0.0;
      const auto count = static_cast<std::int64_t>(of.size()) - lag;
      for (std::int64_t n = 0; n < count; ++n) {
        sum += (of[static_cast<std::size_t>(n)] - 1.0 + probability) *
               (other[static_cast<std::size_t>(n + lag)] - 1.0 + probability);
      }
      EXPECT_NEAR(sum / (probability * (1.0 - probability)), 0.0,
                  4.0 * std::sqrt(static_cast<double>(count)))
          << probability << ", lag " << lag;
    };
    for (const std::int64_t lag : {1, 2, 3, 4, 5, 8}) expect_uncorrelated(of, lag);
    for (const std::int64_t rows : {1, 2, 3, 4}) expect_uncorrelated(of, rows * kKeys);
    Dropout other = dropout;
    other.seed = 7;
    expect_uncorrelated(kept(other), 0);
    other = dropout;
    other.seed += std::uint64_t{1} << 32;
    expect_uncorrelated(kept(other), 0);
    other = dropout;
    other.call = 10;
    expect_uncorrelated(kept(other), 0);
    expect_uncorrelated(kept(dropout, 0, 1), 0);
    expect_uncorrelated(kept(dropout, 1, 0), 0);
  }
}

// ---- In the reference ---------------------------------------------------------------------------

constexpr Dropout kDropout{.probability = 0.3, .seed = 11, .call = 2};

/// Expects 0 for dropped weights, and weight * factor rounded to `arithmetic` for kept ones.
void expect_dropped(const reference::Steps& steps, const Tensor& unrounded, DType arithmetic,
                    const AttentionOptions& options, const ProblemShape& shape) {
  int dropped = 0, others = 0;
  for_each_index(steps.weights.shape(), [&](const Index& at) {
    double expected = 0.0;
    for (std::int64_t item = 0; item < shape.items(); ++item) {
      const SequenceSpan span = sequence_span(options, shape, item);
      const std::int64_t query = at[2] - span.query_start, key = at[3] - span.key_start;
      if (span.batch != at[0] || query < 0 || query >= span.q_len || key < 0 || key >= span.kv_len)
        continue;
      const DropoutRule rule(options.dropout, item, at[1], shape.q_heads);
      const bool keeps = rule.keeps(query, key);
      ++(keeps ? others : dropped);
      if (keeps && arithmetic == DType::kFloat64) expected = unrounded.value(at) * rule.factor();
      if (keeps && arithmetic != DType::kFloat64) {
        Tensor rounded(arithmetic, {});
        const float product = unrounded.at<float>(at) * static_cast<float>(rule.factor());
        set_value(rounded, {}, static_cast<double>(product));
        expected = rounded.value({});
      }
    }
    EXPECT_EQ(steps.dropped_weights.value(at), expected) << to_string(at);
  });
  EXPECT_GT(dropped, 20);
  EXPECT_GT(others, 60);
}

TEST(ReferenceDropout, OnlyTheContextUsesDroppedWeights) {
  const ProblemShape shape{2, 4, 2, 5, 9};
  const RandomProblem p(shape, 3, 4);
  const AttentionOptions without{.mask = causal(), .score = {.sinks = {1, -1, 0, 2}}};
  AttentionOptions with = without;
  with.dropout = kDropout;
  for (const DType arithmetic :
       {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    SCOPED_TRACE(dtype_name(arithmetic));
    const reference::ReferenceOptions how{.arithmetic = arithmetic};
    const reference::Steps plain = attention_steps(p.inputs(), without, how);
    const reference::Steps steps = attention_steps(p.inputs(), with, how);
    EXPECT_FALSE(plain.dropped_weights.defined());
    EXPECT_TRUE(test::same_bits(steps.weights, plain.weights));
    EXPECT_TRUE(test::same_bits(steps.row_sums, plain.row_sums));
    EXPECT_TRUE(test::same_bits(steps.lse, plain.lse));
    EXPECT_TRUE(test::same_bits(steps.visible, plain.visible));
    // Dropped weights of a 16-bit type are rounded once, from float32 weights.
    const bool exact = arithmetic == DType::kFloat64;
    const Tensor unrounded =
        exact ? plain.weights
              : attention_steps(p.inputs(), without, {.arithmetic = DType::kFloat32}).weights;
    expect_dropped(steps, unrounded, arithmetic, with, shape);

    // If the value tensor is an identity matrix, the context equals the weights after dropout.
    RandomProblem identity({2, 4, 2, 5, 9}, 3, 9);
    identity.query = p.query;
    identity.key = p.key;
    for_each_index(identity.value.shape(), [&](const Index& at) {
      identity.value.at<double>(at) = at[2] == at[3] ? 1.0 : 0.0;
    });
    const reference::Steps seen = attention_steps(identity.inputs(), with, how);
    EXPECT_EQ(test::max_difference(seen.context, seen.dropped_weights), 0.0);

    std::vector<reference::Row> rows;
    for_each_index(steps.lse.shape(), [&](const Index& at) {
      rows.push_back({at[0], at[1], at[2]});
    });
    reference::Rows some = attention_rows(p.inputs(), with, rows, how);
    EXPECT_TRUE(
        test::same_bits(std::move(some.context).reshaped(steps.context.shape()), steps.context));
    EXPECT_TRUE(
        test::same_bits(std::move(some.weights).reshaped(steps.weights.shape()), plain.weights));
    EXPECT_TRUE(test::same_bits(std::move(some.lse).reshaped(steps.lse.shape()), plain.lse));
  }
}

TEST(ReferenceDropout, PositionsRestartInPackedSequences) {
  const ProblemShape shape{1, 2, 1, 11, 16, 3};
  const RandomProblem p(shape, 3, 4);
  const AttentionOptions options{.dropout = kDropout, .sequences = {{0, 4, 4, 11}, {0, 7, 9, 16}}};
  const reference::Steps steps = attention_steps(p.inputs(), options);
  expect_dropped(steps, steps.weights, DType::kFloat64, options, shape);
}

TEST(ReferenceDropout, ProbabilityZeroChangesNothing) {
  const RandomProblem p({1, 1, 1, 3, 5}, 3, 4);
  const AttentionOptions none{.dropout = {.probability = 0.0, .seed = 3}};
  const reference::Steps steps = attention_steps(p.inputs(), none);
  EXPECT_FALSE(steps.dropped_weights.defined());
  EXPECT_TRUE(test::same_bits(steps.context, attention_steps(p.inputs(), {}).context));
}

TEST(ReferenceDropout, PreservesTheContextOnAverage) {
  const RandomProblem p({1, 1, 1, 2, 6}, 3, 1);
  const reference::Steps plain = attention_steps(p.inputs(), {});
  constexpr int kCalls = 20000;
  std::array<double, 2> sum{}, squares{};
  for (int call = 0; call < kCalls; ++call) {
    const Dropout dropout{.probability = 0.4, .call = static_cast<std::uint32_t>(call)};
    const reference::Steps steps = attention_steps(p.inputs(), {.dropout = dropout});
    for (std::size_t i = 0; i < 2; ++i) {
      const double x = steps.context.span<double>()[i] - plain.context.span<double>()[i];
      sum[i] += x;
      squares[i] += x * x;
    }
  }
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_GT(squares[i], 0.01 * kCalls);
    EXPECT_LT(std::abs(sum[i]), 4.0 * std::sqrt(squares[i]));
  }
}

}  // namespace
}  // namespace fovea
