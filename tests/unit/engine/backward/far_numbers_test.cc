// SPDX-License-Identifier: Apache-2.0
//
// Gradients of numbers at the limits of passes that compute products of float32 as products of
// bfloat16: such numbers are computed as without these passes, and change nothing where hidden.
// Also subnormal gradients.

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/mask.h"

#include "kernels/simd/target.h"
#include "support/backward.h"
#include "support/flushing.h"
#include "support/limits.h"
#include "support/random_problem.h"
#include "support/storage.h"

namespace fovea::test {
namespace {

constexpr double kMost = std::numeric_limits<float>::max();

/// One block of keys, and enough queries for tiles.
constexpr ProblemShape kFarKeys{1, 2, 1, 140, 128};

struct FarProblem {
  RandomProblem problem = stored_problem(kFarKeys, 32, 40);
  ResultLoss loss = random_loss(problem.inputs());

  reference::Gradients gradients(const AttentionOptions& options) const {
    const Forward results = forward(problem.inputs(), options);
    return backward_of(problem.inputs(), results, options, loss, {}, DType::kFloat32);
  }
};

void fill_with(const MutableTensorView& tensor, double number) {
  change_all(tensor, [&](double) { return number; });
}

AttentionOptions without_tiles(AttentionOptions options) {
  options.float32_by_tiles = false;
  return options;
}

TEST(AttentionBackwardFarNumbers, AreComputedAsWithoutTheTileUnit) {
  struct Far {
    std::string name;
    std::function<void(FarProblem&)> make;
  };
  const std::vector<Far> all{
      {"a key of 1e35", [](FarProblem& p) { fill_with(p.problem.key.view()[0][0][9], 1e35); }},
      {"a value of NaN", [](FarProblem& p) { fill_with(p.problem.value.view()[0][0][9], kNan); }},
      {"a query of 1e-35",
       [](FarProblem& p) { fill_with(p.problem.query.view()[0][1][77], 1e-35); }},
      {"gradients of the context of 1e-33",
       [](FarProblem& p) {
         change_all(p.loss.context.view(), [](double x) { return 1e-33 * x; });
         fill_with(p.loss.lse.view(), 0.0);
       }},
      {"a gradient of lse of infinity", [](FarProblem& p) {
         set_value(p.loss.lse, {0, 1, 33}, kInfinity);
       }}};
  for (const Mask& mask : {Mask(), causal()}) {
    const AttentionOptions options{.mask = mask};
    const FarProblem clean;
    if (storage() == DType::kFloat32 && kernels::tile_unit_active() != kernels::UnitKind::kNone) {
      EXPECT_FALSE(same_bits(clean.gradients(options), clean.gradients(without_tiles(options))));
    }
    for (const Far& far : all) {
      SCOPED_TRACE(far.name + ", " + mask.to_string());
      FarProblem p;
      far.make(p);
      // The forward pass may use tiles for other rows, so both share its results.
      const Forward results = forward(p.problem.inputs(), options);
      const auto gradients = [&](const AttentionOptions& with) {
        return backward_of(p.problem.inputs(), results, with, p.loss, {}, DType::kFloat32);
      };
      EXPECT_TRUE(same_bits(gradients(options), gradients(without_tiles(options))));
    }
  }
}

TEST(AttentionBackwardFarNumbers, HiddenOnesDoNotChangeABit) {
  const AttentionOptions options{.mask = key_lengths({101}) & window(90, 20)};
  const FarProblem clean;
  const reference::Gradients expected = clean.gradients(options);
  for (const double number : {kNan, kInfinity, kMost, 1e35, 1e-35}) {
    SCOPED_TRACE(number);
    FarProblem p;
    for (std::int64_t key = 101; key < kFarKeys.kv_len; ++key) {
      fill_with(p.problem.key.view()[0][0][key], number);
      fill_with(p.problem.value.view()[0][0][key], number);
    }
    EXPECT_TRUE(same_bits(p.gradients(options), expected));
  }
}

TEST(AttentionBackwardFarNumbers, RowsThatSeeNothingDoNotChangeABit) {
  // With this alignment, the first 12 rows see no key.
  const AttentionOptions options{.mask = causal()};
  const FarProblem clean;
  const Forward results = forward(clean.problem.inputs(), options);
  const auto gradients = [&](const FarProblem& p) {
    return backward_of(p.problem.inputs(), results, options, p.loss, {}, DType::kFloat32);
  };
  const reference::Gradients expected = gradients(clean);
  for (const double number : {kNan, kInfinity, kMost, 1e-35}) {
    SCOPED_TRACE(number);
    FarProblem p;
    for (std::int64_t row = 0; row < 12; ++row) {
      fill_with(p.problem.query.view()[0][1][row], number);
      fill_with(p.loss.context.view()[0][1][row], number);
    }
    EXPECT_TRUE(same_bits(gradients(p), expected));
  }
}

TEST(AttentionBackwardFarNumbers, RowsOfTheLowestBiasThatNoLossDependsOnChangeNothing) {
  // The usual mask of rows of padding in other libraries.
  for (const double lowest : {-kMost, -2.4e38, -1e9}) {
    SCOPED_TRACE(lowest);
    FarProblem p;
    Tensor bias(DType::kFloat32, {kFarKeys.q_len, kFarKeys.kv_len});
    const auto gradients = [&] { return p.gradients(AttentionOptions{.score = {.bias = bias}}); };
    for (const std::int64_t row : {0, 77, 138}) {
      for (const std::int64_t head : {0, 1}) {
        fill_with(p.loss.context.view()[0][head][row], 0.0);
        fill_with(p.loss.lse.view()[0][head][row], 0.0);
      }
    }
    const reference::Gradients expected = gradients();
    for (const std::int64_t row : {0, 77, 138}) fill_with(bias.view()[row], lowest);
    const reference::Gradients found = gradients();
    EXPECT_TRUE(same_bits(found.key, expected.key));
    EXPECT_TRUE(same_bits(found.value, expected.value));
  }
}

TEST(AttentionBackwardFarNumbers, NoWeightExceedsOne) {
  // Scores of which the lse rounds off more than 1.
  for (const double scale : {1e7, 1e9, 1e10}) {
    SCOPED_TRACE(scale);
    const FarProblem p;
    const reference::Gradients found = p.gradients({.score = {.scale = scale}});
    for (std::int64_t c = 0; c < 40; ++c) {
      double sizes = 0.0;
      for (const std::int64_t head : {0, 1}) {
        for (std::int64_t row = 0; row < kFarKeys.q_len; ++row) {
          sizes += std::abs(p.loss.context.value({0, head, row, c}));
        }
      }
      for (std::int64_t key = 0; key < kFarKeys.kv_len; ++key) {
        ASSERT_LE(std::abs(found.value.value({0, 0, key, c})), 1.01 * sizes) << key;
      }
    }
  }
}

TEST(AttentionBackwardFarNumbers, SinksOfMinusInfinityHaveNoGradient) {
  FarProblem p;
  fill_with(p.loss.context.view()[0][1][3], kNan);
  const double none = -std::numeric_limits<double>::infinity();
  const reference::Gradients found = p.gradients(AttentionOptions{.score = {.sinks = {0.5, none}}});
  EXPECT_TRUE(std::isfinite(found.sinks.value({0})));
  EXPECT_EQ(found.sinks.value({1}), 0.0);
}

TEST(AttentionBackwardFarNumbers, ItemsOfBothKindsAddInOrder) {
  // A far key in the first of several blocks, so that products of two kinds add to the same query
  // gradients.
  RandomProblem p = stored_problem({1, 1, 1, 700, 1024}, 32, 32);
  fill_with(p.key.view()[0][0][0], 1e-35);
  const ResultLoss loss = random_loss(p.inputs());
  const Forward results = forward(p.inputs(), {});
  const auto gradients = [&](int threads) {
    AttentionOptions options;
    options.execution.threads = threads;
    return backward_of(p.inputs(), results, options, loss, {}, DType::kFloat32);
  };
  const reference::Gradients one = gradients(1);
  for (int turn = 0; turn < 5; ++turn) {
    for (const int threads : {2, 3, 8}) EXPECT_TRUE(same_bits(gradients(threads), one)) << threads;
  }
}

TEST(AttentionBackwardFarNumbers, NanOfAnyBitsStaysNan) {
  const FarProblem clean;
  Forward results = forward(clean.problem.inputs(), {});
  results.lse.at<float>({0, 1, 33}) = std::bit_cast<float>(0xffffffffu);
  const reference::Gradients found =
      backward_of(clean.problem.inputs(), results, {}, clean.loss, {}, DType::kFloat32);
  EXPECT_TRUE(std::isnan(found.value.value({0, 0, 5, 1})));
  EXPECT_TRUE(std::isnan(found.query.value({0, 1, 33, 1})));
  EXPECT_FALSE(std::isnan(found.query.value({0, 1, 34, 1})));
}

TEST(AttentionBackwardFarNumbers, NanInSeveralGroupsOfQueries) {
  RandomProblem p = stored_problem({1, 2, 1, 450, 300}, 32, 40);
  ResultLoss loss = random_loss(p.inputs());
  for (const std::int64_t row : {3, 130, 200, 290, 449}) {
    set_value(loss.context, {0, 1, row, 7}, kNan);
  }
  const AttentionOptions options{.mask = causal()};
  const Forward results = forward(p.inputs(), options);
  const reference::Gradients found =
      backward_of(p.inputs(), results, options, loss, {}, DType::kFloat32);
  for (std::int64_t key = 0; key < 300; ++key) {
    EXPECT_TRUE(std::isnan(found.value.value({0, 0, key, 7}))) << key;  // the last row sees all
    EXPECT_FALSE(std::isnan(found.value.value({0, 0, key, 8}))) << key;
  }
  for (std::int64_t row = 150; row < 450; ++row) {  // earlier rows see nothing
    const bool spoilt = row == 200 || row == 290 || row == 449;
    EXPECT_EQ(std::isnan(found.query.value({0, 1, row, 0})), spoilt) << row;
  }
}

TEST(AttentionBackwardFarNumbers, BiasesFlushSubnormalGradients) {
  Tensor one(DType::kFloat32, {1, 1, 1, 1});
  fill_with(one, 1.0);
  ResultLoss loss;
  loss.context = Tensor(DType::kFloat32, {1, 1, 1, 1});
  fill_with(loss.context, 0x1p-130);
  expect_flushed_with_biases([&](const ScoreOptions& score) {
    const reference::Inputs inputs{one, one, one};
    const AttentionOptions options{.score = score};
    return backward_of(inputs, forward(inputs, options), options, loss, {}, DType::kFloat32)
        .value.value({0, 0, 0, 0});
  });
}

}  // namespace
}  // namespace fovea::test
