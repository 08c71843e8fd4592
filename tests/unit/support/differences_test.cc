// SPDX-License-Identifier: Apache-2.0
//
// The reference's gradients against finite differences of its own float64 forward computation:
// every mask, every score option and combination of them, dropout, every part of a loss, grouped
// heads, packed sequences.

#include "support/differences.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
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

namespace fovea::test {
namespace {

constexpr ProblemShape kShape{2, 2, 1, 3, 4};
constexpr std::int64_t kHeadDim = 2, kValueDim = 3;

/// Checks the gradients for options that have no differentiable tensors.
std::int64_t expect_differences(const AttentionOptions& options,
                                const ProblemShape& shape = kShape) {
  RandomProblem p(shape, kHeadDim, kValueDim);
  Numbers none;
  return expect_differences(p, options, none, Loss(shape, kValueDim));
}

// ---- The comparison itself ----------------------------------------------------------------------

TEST(Differences, DetectWrongGradients) {
  const Tensor by_differences = RandomState(1).randn({2, 3, 4});
  EXPECT_TRUE(same_gradient(by_differences, by_differences));
  for (const double wrong : {0.0, std::nan(""), kInfinity}) {
    Tensor found = by_differences;
    found.at<double>({1, 2, 3}) = wrong;
    EXPECT_FALSE(same_gradient(found, by_differences)) << wrong;
  }
  Tensor scaled = by_differences;
  for (double& x : scaled.span<double>()) x *= 1.0 + 1e-6;
  EXPECT_FALSE(same_gradient(scaled, by_differences));
  EXPECT_FALSE(same_gradient(Tensor(), by_differences));
  EXPECT_FALSE(same_gradient(RandomState(1).randn({2, 12}), by_differences));
}

TEST(Differences, DependOnTheOptions) {
  RandomProblem p(kShape, kHeadDim, kValueDim);
  const Loss loss(kShape, kValueDim);
  const AttentionOptions options{.score = {.softcap = 2.0}, .dropout = {0.3, 1, 0}};
  const Tensor query = differences(p.query, [&] { return loss.of(p.inputs(), options); });
  const auto agrees = [&](const AttentionOptions& other) {
    return static_cast<bool>(
        same_gradient(attention_gradients(p.inputs(), loss.gradients(), other).query, query));
  };
  EXPECT_TRUE(agrees(options));
  EXPECT_FALSE(agrees({.score = {.softcap = 2.001}, .dropout = {0.3, 1, 0}}));
  EXPECT_FALSE(agrees({.score = {.softcap = 2.0}, .dropout = {0.3, 2, 0}}));
  EXPECT_FALSE(agrees({.mask = causal(), .score = {.softcap = 2.0}, .dropout = {0.3, 1, 0}}));
}

// ---- Masks --------------------------------------------------------------------------------------

std::vector<Mask> masks() {
  RandomState random(5);
  Tensor open(DType::kBool, {kShape.batch, kShape.q_heads, kShape.q_len, kShape.kv_len});
  for (bool& one : open.span<bool>()) one = random.randint(0, 3) > 0;
  const Mask drawn = dense(std::move(open));
  const Mask two = documents(random.randint(0, 2, {kShape.batch, kShape.q_len}),
                             random.randint(0, 2, {kShape.batch, kShape.kv_len}));
  return {Mask(),
          causal(),
          window(1, 0),
          window(0, 1),
          window(-1, 1),
          prefix(2),
          prefix(0),
          key_lengths({3, 1}),
          key_lengths({0, 4}),
          two,
          drawn,
          causal() | prefix(1),
          causal() & drawn,
          window(1, 1) | two,
          key_lengths({2, 4}) & causal(),
          (two | prefix(1)) & drawn};
}

TEST(ReferenceDifferences, EveryMaskUnderEveryAlignment) {
  std::int64_t compared = 0;
  for (const Mask& mask : masks()) {
    for (const Alignment& alignment :
         {Alignment::bottom_right(), Alignment::top_left(), Alignment::offset(-2),
          Alignment::offset(2), Alignment::offsets({-1, 1})}) {
      for (const bool sinks : {false, true}) {
        SCOPED_TRACE(mask.to_string() + (sinks ? " with sinks" : ""));
        AttentionOptions options{.mask = mask, .alignment = alignment};
        if (sinks) options.score.sinks = {0.5, -1.0};
        compared += expect_differences(options);
      }
    }
  }
  EXPECT_EQ(compared, 16 * 5 * (2 * (24 + 16 + 24) + 2));
}

// ---- Scores -------------------------------------------------------------------------------------

/// Returns a frequency that depends on the position of the score.
double pace(const ScorePosition& at) {
  return 0.5 + 0.25 * static_cast<double>(at.key) + 0.125 * static_cast<double>(at.query) +
         0.0625 * static_cast<double>(at.head) - 0.1 * static_cast<double>(at.batch);
}

CustomScore wave() {
  return {.tile = [](const void*, const ScoreTile&) {},  // only the engine calls tile functions
          .one = [](const void*, double score,
                    const ScorePosition& at) { return std::sin(pace(at) * score); },
          .tile_derivative = [](const void*, const ScoreTile&) {},
          .one_derivative =
              [](const void*, double score, const ScorePosition& at) {
                return pace(at) * std::cos(pace(at) * score);
              }};
}

using Change = std::function<void(AttentionOptions&, Numbers&)>;

/// Returns every option that affects gradients.
std::vector<Change> changes() {
  return {
      [](AttentionOptions& options, Numbers&) { options.score.scale = -1.3; },
      [](AttentionOptions& options, Numbers&) { options.score.softcap = 1.5; },
      [](AttentionOptions& options, Numbers&) { options.score.custom = wave(); },
      [](AttentionOptions& options, Numbers& numbers) {
        numbers.add_bias(options, {3, 4});
      },
      [](AttentionOptions& options, Numbers&) {
        options.score.alibi = Alibi{{0.5, -0.25}};
      },
      [](AttentionOptions& options, Numbers& numbers) { numbers.add_relative(options, 2); },
      [](AttentionOptions& options, Numbers&) {
        options.score.sinks = {1.0, -0.5};
      },
      [](AttentionOptions& options, Numbers&) {
        options.dropout = {.probability = 0.4, .seed = 8, .call = 1};
      },
  };
}

TEST(ReferenceDifferences, EveryCombinationOfOptions) {
  const std::vector<Change> all = changes();
  std::int64_t compared = 0;
  for (unsigned chosen = 0; chosen < 1U << all.size(); ++chosen) {
    SCOPED_TRACE("combination " + std::to_string(chosen));
    // The first query of each head sees no key, the second query sees one.
    AttentionOptions options{.mask = causal(), .alignment = Alignment::offset(-1)};
    Numbers numbers;
    for (std::size_t n = 0; n < all.size(); ++n) {
      if ((chosen >> n & 1) != 0) all[n](options, numbers);
    }
    RandomProblem p(kShape, kHeadDim, kValueDim, 10 + chosen);
    compared += expect_differences(p, options, numbers, Loss(kShape, kValueDim));
  }
  EXPECT_EQ(compared, 256 * (24 + 16 + 24) + 128 * (12 + 16 + 2));
}

TEST(ReferenceDifferences, EveryOptionWithoutAMask) {
  for (const Change& change : changes()) {
    AttentionOptions options;
    Numbers numbers;
    change(options, numbers);
    RandomProblem p(kShape, kHeadDim, kValueDim);
    expect_differences(p, options, numbers, Loss(kShape, kValueDim));
  }
}

TEST(ReferenceDifferences, CustomScoresApplyAfterTheSoftcap) {
  // Softcap and custom function are both strongly nonlinear, so that any other order fails.
  RandomProblem p(kShape, kHeadDim, kValueDim);
  Numbers numbers;
  AttentionOptions options{.score = {.scale = 3.0, .softcap = 0.8, .custom = wave()}};
  numbers.add_bias(options, {4});
  expect_differences(p, options, numbers, Loss(kShape, kValueDim));
}

TEST(ReferenceDifferences, BiasesOfEveryBroadcastPattern) {
  std::vector<Shape> shapes{{}, {1}, {4}, {3, 1}, {3, 4}, {2, 1, 4}, {1, 3, 1}};
  for (unsigned pattern = 0; pattern < 16; ++pattern) {
    shapes.push_back(
        {(pattern & 1) != 0 ? kShape.batch : 1, (pattern & 2) != 0 ? kShape.q_heads : 1,
         (pattern & 4) != 0 ? kShape.q_len : 1, (pattern & 8) != 0 ? kShape.kv_len : 1});
  }
  for (const Shape& shape : shapes) {
    for (const bool holes : {false, true}) {
      SCOPED_TRACE(to_string(shape) + (holes ? " with holes" : ""));
      RandomProblem p(kShape, kHeadDim, kValueDim);
      Numbers numbers;
      AttentionOptions options{.mask = causal(), .score = {.sinks = {0.3, 0.1}}};
      numbers.add_bias(options, shape);
      if (holes) {
        RandomState random(6);
        for (double& x : numbers.bias.span<double>()) {
          if (random.randint(0, 4) == 0) x = -kInfinity;
        }
      }
      expect_differences(p, options, numbers, Loss(kShape, kValueDim));
    }
  }
}

TEST(ReferenceDifferences, RelativeTablesOfBothKinds) {
  const ProblemShape shape{2, 2, 2, 5, 9};
  for (const bool bidirectional : {false, true}) {
    for (const Alignment& alignment : {Alignment::bottom_right(), Alignment::offsets({-3, 4})}) {
      RandomProblem p(shape, kHeadDim, kValueDim);
      Numbers numbers;
      AttentionOptions options{.alignment = alignment};
      numbers.add_relative(options, shape.q_heads, bidirectional);
      numbers.relative.at<double>({1, 0}) = -kInfinity;
      expect_differences(p, options, numbers, Loss(shape, kValueDim));
    }
  }
}

TEST(ReferenceDifferences, SinkOfMinusInfinityHasNoEffect) {
  expect_differences({.mask = causal(), .score = {.sinks = {-kInfinity, 2.0}}});
  expect_differences({.mask = prefix(0), .score = {.sinks = {-kInfinity, 2.0}}});
}

// ---- Losses, shapes, packed sequences -----------------------------------------------------------

TEST(ReferenceDifferences, EveryPartOfALoss) {
  for (unsigned parts = 0; parts < 8; ++parts) {
    for (const bool dropout : {false, true}) {
      SCOPED_TRACE(testing::Message() << "parts " << parts);
      RandomProblem p(kShape, kHeadDim, kValueDim);
      Numbers numbers;
      AttentionOptions options{.mask = causal(), .score = {.sinks = {0.5, 1.5}}};
      if (dropout) options.dropout = {.probability = 0.5, .seed = 4};
      numbers.add_bias(options, {2, 3, 4});
      const Loss loss(kShape, kValueDim, {(parts & 1) != 0, (parts & 2) != 0, (parts & 4) != 0});
      expect_differences(p, options, numbers, loss);
    }
  }
}

TEST(ReferenceDifferences, ShapesOfAllKinds) {
  const std::array<ProblemShape, 9> shapes{{{1, 1, 1, 1, 1},
                                            {1, 6, 2, 3, 4},
                                            {2, 3, 3, 2, 3},
                                            {1, 4, 1, 2, 2},
                                            {1, 1, 1, 5, 2},
                                            {1, 1, 1, 1, 9},
                                            {2, 2, 1, 0, 3},
                                            {2, 2, 1, 3, 0},
                                            {0, 2, 1, 3, 3}}};
  for (const ProblemShape& shape : shapes) {
    for (const auto& [head_dim, value_dim] :
         std::vector<std::array<std::int64_t, 2>>{{2, 3}, {5, 1}, {0, 2}, {2, 0}}) {
      SCOPED_TRACE(testing::Message()
                   << shape.batch << ", " << shape.q_heads << ", " << shape.kv_heads << ", "
                   << shape.q_len << ", " << shape.kv_len << "; " << head_dim << ", " << value_dim);
      RandomProblem p(shape, head_dim, value_dim);
      Numbers numbers;
      AttentionOptions options{.mask = causal(), .dropout = {.probability = 0.2}};
      options.score.sinks.assign(static_cast<std::size_t>(shape.q_heads), 0.25);
      numbers.add_bias(options, {1, shape.q_len, 1});
      expect_differences(p, options, numbers, Loss(shape, value_dim));
    }
  }
}

TEST(ReferenceDifferences, PackedSequences) {
  // Sequences with as many queries as keys, fewer, more, no queries, and no keys.
  const ProblemShape shape{1, 2, 1, 8, 9, 5};
  const PackedSequences sequences{{0, 2, 3, 6, 6, 8}, {0, 2, 5, 7, 9, 9}};
  RandomState random(7);
  const Mask ids = documents(random.randint(0, 2, {8}), random.randint(0, 2, {9}));
  for (const Mask& mask :
       {Mask(), causal(), window(1, 1), ids | prefix(1), key_lengths({1, 3, 1, 0, 0}) & causal()}) {
    for (const Alignment& alignment :
         {Alignment::bottom_right(), Alignment::offsets({0, 1, -1, 2, 0})}) {
      SCOPED_TRACE(mask.to_string());
      RandomProblem p(shape, kHeadDim, kValueDim);
      Numbers numbers;
      AttentionOptions options{
          .mask = mask,
          .score = {.softcap = 2.0, .custom = wave(), .alibi = Alibi{}, .sinks = {0.5, -0.5}},
          .dropout = {.probability = 0.3, .seed = 12},
          .alignment = alignment,
          .sequences = sequences};
      numbers.add_bias(options, {8, 9});
      numbers.add_relative(options, shape.q_heads);
      expect_differences(p, options, numbers, Loss(shape, kValueDim));
    }
  }
}

}  // namespace
}  // namespace fovea::test
