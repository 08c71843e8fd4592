// SPDX-License-Identifier: Apache-2.0
//
// NaN and infinity in gradients: masked values do not change a single bit; NaN and
// infinity in visible values spread as in the reference, and all other bits are unchanged.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/mask.h"
#include "fovea/random.h"

#include "support/backward.h"
#include "support/limits.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

/// Two blocks of keys.
constexpr ProblemShape kNonfiniteShape{1, 2, 1, 53, 150};
constexpr std::int64_t kNonfiniteHeadDim = 5, kNonfiniteValueDim = 19;

/// All inputs of a backward call.
struct Everything {
  RandomProblem problem = stored_problem(kNonfiniteShape, kNonfiniteHeadDim, kNonfiniteValueDim);
  Forward results;
  ResultLoss loss;

  explicit Everything(const AttentionOptions& options) {
    results = forward(problem.inputs(), options);
    loss = random_loss(problem.inputs());
  }
  reference::Gradients gradients(const AttentionOptions& options) const {
    return backward_of(problem.inputs(), results, options, loss, {}, DType::kFloat32);
  }
};

void poison_row(Tensor& tensor, std::int64_t row, double number) {
  for (std::int64_t head = 0; head < tensor.extent(1); ++head) {
    if (tensor.rank() == 3) {
      set_value(tensor, {0, head, row}, number);
      continue;
    }
    for (std::int64_t c = 0; c < tensor.extent(3); ++c)
      set_value(tensor, {0, head, row, c}, number);
  }
}

Tensor open_but(const std::function<bool(std::int64_t, std::int64_t)>& hidden) {
  Tensor open(DType::kBool, {kNonfiniteShape.q_len, kNonfiniteShape.kv_len});
  for_each_index(open.shape(), [&](const Index& at) { open.at<bool>(at) = !hidden(at[0], at[1]); });
  return open;
}

bool hides_key(std::int64_t key) { return key % 7 == 3 || key >= 140; }
bool hides_row(std::int64_t query) { return query % 5 == 2 || query > 49; }

/// A score of -inf for keys after the query.
CustomScore hides_later_keys() {
  return {.tile =
              [](const void*, const ScoreTile& tile) {
                for (std::int64_t k = 0; k < tile.keys; ++k) {
                  float* const scores = tile.scores + k * tile.stride;
                  for (std::int64_t i = 0; i < tile.lanes; ++i) {
                    const bool hides = tile.first.key + k > tile.first.query + i;
                    scores[i] =
                        hides ? -std::numeric_limits<float>::infinity() : tile.factor * scores[i];
                  }
                }
              },
          .one = [](const void*, double score,
                    const ScorePosition& at) { return at.key > at.query ? -kInfinity : score; },
          .tile_derivative =
              [](const void*, const ScoreTile& tile) {
                for (std::int64_t k = 0; k < tile.keys; ++k) {
                  std::fill_n(tile.scores + k * tile.stride, tile.lanes, tile.factor);
                }
              },
          .one_derivative = [](const void*, double, const ScorePosition&) { return 1.0; }};
}

/// Returns masks, biases and scores that hide these keys and rows.
std::vector<AttentionOptions> hiding() {
  const auto hidden = [](std::int64_t q, std::int64_t k) { return hides_row(q) || hides_key(k); };
  Tensor bias(DType::kFloat32, {kNonfiniteShape.q_len, kNonfiniteShape.kv_len});
  for_each_index(bias.shape(), [&](const Index& at) {
    set_value(bias, at, hidden(at[0], at[1]) ? -kInfinity : 0.1 * static_cast<double>(at[1] % 3));
  });
  std::vector<AttentionOptions> all{
      {.mask = dense(open_but(hidden))},
      {.mask = dense(open_but(hidden)) & window(60, 60)},
      {.mask = dense(open_but(hidden)), .score = {.softcap = 2.0}},
      {.mask = dense(open_but(hidden)),
       .score = {.alibi = Alibi{}, .relative = RelativeTable{RandomState(3).randn({16, 2})}}},
      {.mask = dense(open_but(hidden)), .dropout = {.probability = 0.3, .seed = 5}},
      {.mask = dense(open_but(hidden)), .score = {.sinks = {0.5, -1000.3}}},
      {.score = {.bias = Tensor(bias), .sinks = {1000.3, 0.1}}},
      {.score = {.bias = std::move(bias)}}};
  // The mask leaves later keys to the rows, and a bucket of -inf hides these.
  Tensor table = RandomState(7).randn({16, 2});
  for (std::int64_t head = 0; head < 2; ++head) set_value(table, {0, head}, -kInfinity);
  const auto later_keys = [](std::int64_t q, std::int64_t k) {
    return hides_key(k) || (k > q) != hides_row(q);
  };
  all.push_back({.mask = dense(open_but(later_keys)),
                 .score = {.relative = RelativeTable{std::move(table), false}, .sinks = {0.5, -3}},
                 .alignment = Alignment::top_left()});
  all.push_back({.mask = dense(open_but(later_keys)),
                 .score = {.custom = hides_later_keys(), .sinks = {0.5, -3}},
                 .alignment = Alignment::top_left()});
  return all;
}

TEST(AttentionBackwardNonfinite, MaskedKeysAndRowsDoNotChangeABit) {
  for (const AttentionOptions& options : hiding()) {
    const Everything clean(options);
    const reference::Gradients expected = clean.gradients(options);
    for (const double number : {kNan, kInfinity, -kInfinity}) {
      SCOPED_TRACE(number);
      Everything poisoned = clean;
      for (std::int64_t key = 0; key < kNonfiniteShape.kv_len; ++key) {
        if (!hides_key(key)) continue;
        poison_row(poisoned.problem.key, key, number);
        poison_row(poisoned.problem.value, key, number);
      }
      EXPECT_TRUE(same_bits(poisoned.gradients(options), expected)) << "keys";
      for (std::int64_t row = 0; row < kNonfiniteShape.q_len; ++row) {
        if (!hides_row(row)) continue;
        const bool sinks = !options.score.sinks.empty();
        const double lse = sinks ? options.score.sinks.front() : -kInfinity;
        ASSERT_EQ(clean.results.lse.at<float>({0, 0, row}), static_cast<float>(lse));
        poison_row(poisoned.problem.query, row, number);
        poison_row(poisoned.results.context, row, number);
        poison_row(poisoned.loss.context, row, number);
        // A sink's gradient includes that of lse.
        if (!sinks) poison_row(poisoned.loss.lse, row, number);
      }
      EXPECT_TRUE(same_bits(poisoned.gradients(options), expected)) << "keys and rows";
    }
  }
}

TEST(AttentionBackwardNonfinite, KeysBeyondTheEndDoNotChangeABit) {
  for (const AttentionOptions& options :
       {AttentionOptions{.mask = key_lengths({101})}, AttentionOptions{.mask = key_lengths({96})},
        AttentionOptions{.mask = causal(), .alignment = Alignment::offset(48)},
        AttentionOptions{.mask = window(7, 0), .alignment = Alignment::offset(48)}}) {
    const Everything clean(options);
    Everything poisoned = clean;
    for (std::int64_t key = 101; key < kNonfiniteShape.kv_len; ++key) {
      poison_row(poisoned.problem.key, key, kNan);
      poison_row(poisoned.problem.value, key, kNan);
    }
    EXPECT_TRUE(same_bits(poisoned.gradients(options), clean.gradients(options)))
        << options.mask.to_string();
  }
}

TEST(AttentionBackwardNonfinite, EveryKeyAroundTheDiagonal) {
  const AttentionOptions options{.mask = causal(), .alignment = Alignment::top_left()};
  for (std::int64_t key = 0; key < kNonfiniteShape.q_len; ++key) {
    const Everything clean(options);
    Everything poisoned = clean;
    poison_row(poisoned.problem.key, key, kNan);
    const auto found = poisoned.gradients(options), expected = clean.gradients(options);
    for_each_index(found.query.shape(), [&](const Index& at) {
      const double x = found.query.value(at);
      const bool right = at[2] >= key ? std::isnan(x) : x == expected.query.value(at);
      EXPECT_TRUE(right) << to_string(at) << ", key " << key;
    });
  }
}

// ---- Visible values -----------------------------------------------------------------------------

/// Checks that gradients are close to the oracle's where those are finite, and non-finite
/// elsewhere.
void expect_spread_as_in_the_reference(const AttentionOptions& options,
                                       const Everything& poisoned) {
  const reference::Gradients found = poisoned.gradients(options);
  const reference::Gradients exact =
      gradients_by_reference(poisoned.problem.inputs(), options, poisoned.loss, DType::kFloat64);
  const double tolerance = 1e-4 + 20 * rounding_of(storage());
  for (const NamedGradient& gradient : kGradients) {
    const Tensor& of_found = found.*gradient.member;
    if (!of_found.defined()) continue;
    std::int64_t wrong = 0;
    for_each_index(of_found.shape(), [&](const Index& at) {
      const double x = of_found.value(at), expected = (exact.*gradient.member).value(at);
      const bool right = std::isfinite(expected)
                             ? std::abs(x - expected) <= tolerance * (1.0 + std::abs(expected))
                             : !std::isfinite(x);
      if (!right && wrong++ == 0) {
        ADD_FAILURE() << "gradient of " << gradient.name << " at " << to_string(at) << ": " << x
                      << ", the reference has " << expected;
      }
    });
  }
}

TEST(AttentionBackwardNonfinite, VisibleValuesSpreadAsInTheReference) {
  const std::vector<AttentionOptions> all{
      {},
      {.mask = causal()},
      {.mask = window(20, 4)},
      {.mask = causal(), .score = {.softcap = 2.0, .sinks = {0, 1}}},
      {.mask = dense(open_but([](std::int64_t q, std::int64_t k) { return (q * k) % 3 == 1; })),
       .score = {.bias = Tensor(DType::kFloat32, {53, 150})}}};
  for (std::size_t n = 0; n < all.size(); ++n) {
    const AttentionOptions& options = all[n];
    const Everything clean(options);
    for (const double number : {kNan, kInfinity}) {
      const auto poisoned_by = [&](const std::function<void(Everything&)>& poison) {
        Everything poisoned = clean;
        poison(poisoned);
        // The results are computed from the poisoned problem.
        poisoned.results = forward(poisoned.problem.inputs(), options);
        expect_spread_as_in_the_reference(options, poisoned);
      };
      for (const std::int64_t row : {17, 52}) {
        SCOPED_TRACE(testing::Message() << "options " << n << ", " << number << ", row " << row);
        poisoned_by([&](Everything& e) { poison_row(e.problem.query, row, number); });
        poisoned_by([&](Everything& e) { set_value(e.loss.context, {0, 1, row, 4}, kNan); });
        poisoned_by([&](Everything& e) { set_value(e.loss.lse, {0, 1, row}, kNan); });
      }
      for (const std::int64_t key : {3, 80, 149}) {
        SCOPED_TRACE(testing::Message() << "options " << n << ", " << number << ", key " << key);
        poisoned_by([&](Everything& e) { poison_row(e.problem.key, key, kNan); });
        poisoned_by([&](Everything& e) { set_value(e.problem.value, {0, 0, key, 7}, number); });
      }
    }
  }
}

TEST(AttentionBackwardNonfinite, NanStaysWithinItsSequence) {
  AttentionOptions options{.mask = causal()};
  options.sequences = {{0, 20, 21, 53}, {0, 60, 70, 150}};
  const Everything clean(options);
  const reference::Gradients expected = clean.gradients(options);
  Everything poisoned = clean;
  poison_row(poisoned.problem.query, 20, kNan);
  poison_row(poisoned.loss.context, 20, kNan);
  for (std::int64_t key = 60; key < 70; ++key) {
    poison_row(poisoned.problem.key, key, kNan);
    poison_row(poisoned.problem.value, key, kNan);
  }
  const reference::Gradients found = poisoned.gradients(options);
  for (const NamedGradient& gradient : kGradients) {
    const Tensor& of_found = found.*gradient.member;
    if (!of_found.defined()) continue;
    for_each_index(of_found.shape(), [&](const Index& at) {
      const bool of_it =
          gradient.member == &reference::Gradients::query ? at[2] == 20 : at[2] >= 60 && at[2] < 70;
      const double x = of_found.value(at);
      EXPECT_TRUE(of_it ? std::isnan(x) : x == (expected.*gradient.member).value(at))
          << gradient.name << " at " << to_string(at);
    });
  }
}

}  // namespace
}  // namespace fovea::test
