// SPDX-License-Identifier: Apache-2.0
//
// The reference against closed forms and properties that hold for any input. (The arrays that the
// five notebooks print are checked by scene/read/examples_test.cc.)

#include "fovea/reference.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/error.h"

#include "support/limits.h"
#include "support/message_of.h"
#include "support/random_problem.h"

namespace fovea::reference {
namespace {

using test::kInfinity;
using test::kNan;
using test::kTight;
using test::max_difference;
using test::message_of;
using test::RandomProblem;

Steps attend(const RandomProblem& problem, const AttentionOptions& options = {},
             const ReferenceOptions& how = {}) {
  return attention_steps(problem.inputs(), options, how);
}

TEST(TestSupport, MaxDifferenceDetectsEveryKindOfDifference) {
  const Tensor a = Tensor::matrix({{1, 2}, {3, 4}});
  Tensor b = a;
  EXPECT_EQ(max_difference(a, b), 0.0);
  b.at<double>({1, 1}) = 4.5;
  EXPECT_EQ(max_difference(a, b), 0.5);
  b.at<double>({0, 0}) = kNan;
  EXPECT_TRUE(std::isnan(max_difference(a, b)));
  EXPECT_TRUE(std::isnan(max_difference(a, Tensor::matrix({{1, 2}}))));
  b.at<double>({0, 0}) = -1;
  EXPECT_EQ(max_difference(a, b), 2.0);
}

// ---- Closed forms -------------------------------------------------------------------------------

TEST(Reference, OneKeyGivesItsValue) {
  const RandomProblem problem({2, 3, 3, 4, 1}, 5, 6);
  const Steps steps = attend(problem);
  for_each_index(steps.context.shape(), [&](const Index& at) {
    EXPECT_EQ(steps.context.value(at), problem.value.value({at[0], at[1], 0, at[3]}));
  });
  for_each_index(steps.lse.shape(), [&](const Index& at) {
    EXPECT_EQ(steps.lse.value(at), steps.scaled_scores.value({at[0], at[1], at[2], 0}));
  });
}

TEST(Reference, EqualKeysShareEvenly) {
  RandomProblem problem({1, 2, 2, 3, 7}, 4, 4);
  for_each_index(problem.key.shape(), [&](const Index& at) {
    problem.key.at<double>(at) = problem.key.value({at[0], at[1], 0, at[3]});
  });
  const Steps steps = attend(problem);
  for (const double weight : steps.weights.span<double>()) EXPECT_NEAR(weight, 1.0 / 7, kTight);
  for_each_index(steps.lse.shape(), [&](const Index& at) {
    EXPECT_NEAR(steps.lse.value(at),
                steps.scaled_scores.value({at[0], at[1], at[2], 0}) + std::log(7.0), kTight);
  });
}

TEST(Reference, ConstantValuesComeBack) {
  RandomProblem problem({1, 1, 1, 5, 6}, 3, 2);
  for (double& value : problem.value.span<double>()) value = -2.5;
  const Steps steps = attend(problem);
  for (const double context : steps.context.span<double>()) EXPECT_NEAR(context, -2.5, kTight);
}

TEST(Reference, IdentityValuesGiveTheWeights) {
  RandomProblem problem({1, 1, 1, 4, 5}, 3, 5);
  for_each_index(problem.value.shape(), [&](const Index& at) {
    problem.value.at<double>(at) = at[2] == at[3] ? 1.0 : 0.0;
  });
  const Steps steps = attend(problem);
  EXPECT_EQ(max_difference(steps.context, steps.weights), 0.0);
}

TEST(Reference, TwoKeysAreALogisticFunction) {
  const Tensor query = Tensor::from<double>({1, 1, 1, 1}, std::vector<double>{1.0});
  const Tensor key = Tensor::from<double>({1, 1, 2, 1}, std::vector<double>{0.3, -1.1});
  const Steps steps = attention_steps({query, key, key}, {.score = {.scale = 1.0}});
  EXPECT_NEAR(steps.weights.value({0, 0, 0, 0}), 1 / (1 + std::exp(-1.4)), kTight);
  EXPECT_FALSE(steps.scaled_scores.defined());
}

TEST(Reference, PermutingKeysPermutesWeightsAndKeepsContext) {
  const RandomProblem problem({1, 2, 2, 3, 6}, 4, 5);
  const std::vector<std::int64_t> order = {3, 0, 5, 1, 4, 2};
  RandomProblem permuted = problem;
  for_each_index(problem.key.shape(), [&](const Index& at) {
    permuted.key.at<double>(at) =
        problem.key.value({at[0], at[1], order[static_cast<std::size_t>(at[2])], at[3]});
  });
  for_each_index(problem.value.shape(), [&](const Index& at) {
    permuted.value.at<double>(at) =
        problem.value.value({at[0], at[1], order[static_cast<std::size_t>(at[2])], at[3]});
  });
  const Steps a = attend(problem);
  const Steps b = attend(permuted);
  EXPECT_LT(max_difference(a.context, b.context), kTight);
  for_each_index(b.weights.shape(), [&](const Index& at) {
    EXPECT_NEAR(b.weights.value(at),
                a.weights.value({at[0], at[1], at[2], order[static_cast<std::size_t>(at[3])]}),
                kTight);
  });
}

// ---- Scores -------------------------------------------------------------------------------------

TEST(Reference, GeneralScoreIsDotScoreOfProjectedKeys) {
  const RandomProblem problem({1, 1, 1, 3, 4}, 2, 2, 5);
  RandomState random(9);
  const Tensor narrow_query = random.randn({1, 1, 3, 3});
  const Tensor w = random.randn({3, 2});
  const Steps general = attention_steps({narrow_query, problem.key, problem.value},
                                        {.score = {.scale = 1.0}}, {.score_kind = GeneralScore{w}});
  Tensor projected(DType::kFloat64, {1, 1, 3, 2});
  for_each_index(projected.shape(), [&](const Index& at) {
    for (std::int64_t d = 0; d < 3; ++d) {
      projected.at<double>(at) += narrow_query.value({0, 0, at[2], d}) * w.value({d, at[3]});
    }
  });
  const Steps dot =
      attention_steps({projected, problem.key, problem.value}, {.score = {.scale = 1.0}});
  EXPECT_LT(max_difference(general.scores, dot.scores), kTight);
  EXPECT_LT(max_difference(general.context, dot.context), kTight);
}

TEST(Reference, AdditiveScoreByHand) {
  const Tensor query = Tensor::from<double>({1, 1, 1, 2}, std::vector<double>{0.5, -1.0});
  const Tensor key = Tensor::from<double>({1, 1, 1, 1}, std::vector<double>{2.0});
  const Tensor w = Tensor::matrix({{1.0, 0.0}, {0.5, 2.0}});
  const Tensor u = Tensor::matrix({{0.25, 1.0}});
  const Tensor v = Tensor::from<double>({2}, std::vector<double>{3.0, -1.0});
  const Steps steps = attention_steps({query, key, key}, {.score = {.scale = 1.0}},
                                      {.score_kind = AdditiveScore{w, u, v}});
  // The arguments of tanh: 0.5*1 - 1*0.5 + 2*0.25 = 0.5 and 0.5*0 - 1*2 + 2*1 = 0.
  EXPECT_NEAR(steps.hidden.value({0, 0, 0, 0, 0}), std::tanh(0.5), kTight);
  EXPECT_NEAR(steps.hidden.value({0, 0, 0, 0, 1}), 0.0, kTight);
  EXPECT_NEAR(steps.scores.value({0, 0, 0, 0}), 3.0 * std::tanh(0.5), kTight);
}

TEST(Reference, ScaleThenSoftcapThenBiasThenMask) {
  const RandomProblem problem({1, 1, 1, 3, 3}, 2, 2);
  const Tensor bias = Tensor::matrix({{0.5, -1.0, 2.0}});
  const AttentionOptions options{.mask = causal(),
                                 .score = {.scale = 2.0, .softcap = 1.5, .bias = bias}};
  const Steps steps = attend(problem, options);
  for_each_index(steps.scores.shape(), [&](const Index& at) {
    const double scaled = 2.0 * steps.scores.value(at);
    const double capped = 1.5 * std::tanh(scaled / 1.5);
    const double biased = capped + bias.value({0, at[3]});
    EXPECT_EQ(steps.scaled_scores.value(at), scaled);
    EXPECT_EQ(steps.softcapped_scores.value(at), capped);
    EXPECT_EQ(steps.biased_scores.value(at), biased);
    EXPECT_EQ(steps.masked_scores.value(at), at[3] <= at[2] ? biased : -kInfinity);
  });
}

TEST(Reference, DefaultScaleIsOneOverRootOfHeadDim) {
  const RandomProblem problem({1, 1, 1, 2, 2}, 9, 1);
  const Steps steps = attend(problem);
  for_each_index(steps.scores.shape(), [&](const Index& at) {
    EXPECT_NEAR(steps.scaled_scores.value(at), steps.scores.value(at) / 3.0, kTight);
  });
}

TEST(Reference, AlibiLowersDistantScores) {
  const RandomProblem problem({1, 2, 2, 2, 5}, 3, 2);
  const Steps steps = attend(problem, {.score = {.alibi = Alibi{{0.5, 2.0}}}});
  for_each_index(steps.scores.shape(), [&](const Index& at) {
    const double slope = at[1] == 0 ? 0.5 : 2.0;
    const double distance = std::abs(static_cast<double>(at[2] + 3 - at[3]));  // offset 5 - 2
    EXPECT_NEAR(steps.biased_scores.value(at), steps.scaled_scores.value(at) - slope * distance,
                kTight);
  });
}

TEST(Reference, RelativeTableAddsItsBucket) {
  const RandomProblem problem({1, 2, 2, 4, 4}, 3, 2);
  RandomState random(3);
  const Tensor table = random.randn({8, 2});
  const RelativeTable relative{table, true, 16};
  const Steps steps = attend(problem, {.score = {.relative = relative}});
  for_each_index(steps.scores.shape(), [&](const Index& at) {
    const std::int64_t bucket = relative_bucket(at[3] - at[2], relative);
    EXPECT_NEAR(steps.biased_scores.value(at) - steps.scaled_scores.value(at),
                table.value({bucket, at[1]}), kTight);
  });
}

// ---- Masks --------------------------------------------------------------------------------------

TEST(Reference, FullyMaskedRowGivesZeroAndMinusInfinity) {
  const RandomProblem problem({1, 1, 1, 5, 2}, 3, 4);
  const Steps steps = attend(problem, {.mask = causal()});  // bottom-right: rows 0 to 2 see nothing
  for (std::int64_t i = 0; i < 5; ++i) {
    const bool empty = i < 3;
    EXPECT_EQ(std::isinf(steps.lse.value({0, 0, i})), empty);
    EXPECT_NEAR(steps.row_sums.value({0, 0, i}), empty ? 0.0 : 1.0, kTight);
    for (std::int64_t d = 0; empty && d < 4; ++d) {
      EXPECT_EQ(steps.context.value({0, 0, i, d}), 0.0);
    }
  }
  EXPECT_EQ(steps.lse.value({0, 0, 0}), -kInfinity);
}

TEST(Reference, MaskedNanAndInfinityNeverLeak) {
  RandomProblem clean({1, 1, 1, 3, 5}, 3, 2);
  for (const double poison : {kNan, kInfinity, -kInfinity}) {
    RandomProblem poisoned = clean;
    for (std::int64_t d = 0; d < 3; ++d) poisoned.key.at<double>({0, 0, 4, d}) = poison;
    for (std::int64_t d = 0; d < 2; ++d) poisoned.value.at<double>({0, 0, 4, d}) = poison;
    const AttentionOptions options{.mask = key_lengths({4}), .alignment = Alignment::top_left()};
    EXPECT_EQ(max_difference(attend(clean, options).context, attend(poisoned, options).context), 0);
    EXPECT_EQ(max_difference(attend(clean, options).lse, attend(poisoned, options).lse), 0);
  }
}

TEST(Reference, VisibleNanSpreads) {
  RandomProblem problem({1, 1, 1, 2, 3}, 3, 2);
  problem.value.at<double>({0, 0, 1, 0}) = kNan;
  const Steps steps = attend(problem);
  EXPECT_TRUE(std::isnan(steps.context.value({0, 0, 0, 0})));
  EXPECT_FALSE(std::isnan(steps.context.value({0, 0, 0, 1})));
  problem.key.at<double>({0, 0, 1, 0}) = kNan;
  EXPECT_TRUE(std::isnan(attend(problem).context.value({0, 0, 1, 1})));
}

TEST(Reference, BiasOfMinusInfinityMasks) {
  RandomProblem problem({1, 1, 1, 2, 3}, 3, 2);
  for (std::int64_t d = 0; d < 2; ++d) problem.value.at<double>({0, 0, 2, d}) = kNan;
  const Tensor bias = Tensor::matrix({{0, 0, -kInfinity}, {-kInfinity, -kInfinity, -kInfinity}});
  const Steps steps = attend(problem, {.score = {.bias = bias}});
  EXPECT_TRUE(std::isfinite(steps.context.value({0, 0, 0, 0})));
  EXPECT_EQ(steps.weights.value({0, 0, 0, 2}), 0.0);
  EXPECT_EQ(steps.context.value({0, 0, 1, 0}), 0.0);
  EXPECT_EQ(steps.lse.value({0, 0, 1}), -kInfinity);
}

TEST(Reference, ScoreOfMinusInfinityMasksWhateverItsSource) {
  // head_dim is 1, so that each score is one product. Key 1 is always masked.
  struct Source {
    const char* name;
    double query, key, bias, softcap;
    DType arithmetic;
  };
  for (const Source& source :
       {Source{"key", 2, -kInfinity, 0, 0, DType::kFloat64},
        Source{"query times key", -1e200, 1e200, 0, 0, DType::kFloat64},
        Source{"float32", -1e30, 1e30, 0, 0, DType::kFloat32},
        Source{"bias", 1, kNan, -kInfinity, 0, DType::kFloat64},
        Source{"softcapped, then bias", 1, kInfinity, -kInfinity, 5, DType::kFloat64}}) {
    SCOPED_TRACE(source.name);
    const Tensor query = Tensor::from<double>({1, 1, 1, 1}, std::vector<double>{source.query});
    const Tensor key = Tensor::from<double>({1, 1, 2, 1}, std::vector<double>{0, source.key});
    const Tensor value = Tensor::from<double>({1, 1, 2, 1}, std::vector<double>{-2.5, kNan});
    const Tensor only_key = Tensor::from<double>({1, 1, 1, 1}, std::vector<double>{source.key});
    const Tensor only_value = Tensor::from<double>({1, 1, 1, 1}, std::vector<double>{kNan});
    AttentionOptions options{.score = {.scale = 1.0, .softcap = source.softcap}};
    for (const Normalization kind : {Normalization::kSoftmax, Normalization::kSoftmaxUnshifted}) {
      const ReferenceOptions how{.normalization = kind, .arithmetic = source.arithmetic};
      options.score.bias = Tensor::matrix({{0, source.bias}});
      options.score.sinks = {};
      const Steps steps = attention_steps({query, key, value}, options, how);
      EXPECT_EQ(steps.context.value({0, 0, 0, 0}), -2.5);
      EXPECT_EQ(steps.weights.value({0, 0, 0, 0}), 1.0);
      EXPECT_EQ(steps.weights.value({0, 0, 0, 1}), 0.0);
      EXPECT_EQ(steps.visible.value({0, 0, 0, 0}), 1.0);
      EXPECT_EQ(steps.visible.value({0, 0, 0, 1}), 0.0);
      EXPECT_EQ(steps.lse.value({0, 0, 0}), 0.0);

      options.score.bias = Tensor::matrix({{source.bias}});
      const Steps empty = attention_steps({query, only_key, only_value}, options, how);
      EXPECT_EQ(empty.context.value({0, 0, 0, 0}), 0.0);
      EXPECT_EQ(empty.row_sums.value({0, 0, 0}), 0.0);
      EXPECT_EQ(empty.lse.value({0, 0, 0}), -kInfinity);
      options.score.sinks = {0.75};
      const Steps sunk = attention_steps({query, only_key, only_value}, options, how);
      EXPECT_EQ(sunk.context.value({0, 0, 0, 0}), 0.0);
      EXPECT_EQ(sunk.lse.value({0, 0, 0}), 0.75);
    }
  }
}

TEST(Reference, ScoreOfMinusInfinityIsExcludedFromTheSum) {
  const Tensor query = Tensor::from<double>({1, 1, 1, 1}, std::vector<double>{1});
  const Tensor key = Tensor::from<double>({1, 1, 3, 1}, std::vector<double>{3, -kInfinity, 1});
  const Steps steps = attention_steps({query, key, key}, {.score = {.scale = 1.0}},
                                      {.normalization = Normalization::kSum});
  EXPECT_EQ(max_difference(steps.weights.view()[0][0], Tensor::matrix({{0.75, 0, 0.25}})), 0.0);
  EXPECT_EQ(steps.context.value({0, 0, 0, 0}), 2.5);
}

TEST(Reference, SinkJoinsTheDenominatorOnly) {
  const RandomProblem problem({1, 2, 2, 2, 3}, 3, 2);
  const std::vector<double> sinks = {0.7, 40.0};
  const Steps without = attend(problem);
  const Steps with = attend(problem, {.score = {.sinks = sinks}});
  for_each_index(with.weights.shape(), [&](const Index& at) {
    const double lse = without.lse.value({at[0], at[1], at[2]});
    const double sink = sinks[static_cast<std::size_t>(at[1])];
    const double joined = std::max(lse, sink) + std::log1p(std::exp(-std::abs(lse - sink)));
    EXPECT_NEAR(with.lse.value({at[0], at[1], at[2]}), joined, 1e-12);
    EXPECT_NEAR(with.weights.value(at), without.weights.value(at) * std::exp(lse - joined), kTight);
    EXPECT_NEAR(with.row_sums.value({at[0], at[1], at[2]}), 1 - std::exp(sink - joined), 1e-12);
  });
}

TEST(Reference, FullyMaskedRowWithSinkHasTheSinkAsLse) {
  const RandomProblem problem({1, 1, 1, 2, 3}, 3, 2);
  const Steps steps = attend(problem, {.mask = prefix(0), .score = {.sinks = {1.25}}});
  EXPECT_EQ(steps.lse.value({0, 0, 0}), 1.25);
  EXPECT_EQ(steps.context.value({0, 0, 0, 0}), 0.0);
  EXPECT_EQ(steps.row_sums.value({0, 0, 0}), 0.0);
}

// ---- Normalisations -----------------------------------------------------------------------------

TEST(Reference, SoftmaxHandlesScoresThatOverflowUnshifted) {
  const Tensor query = Tensor::from<double>({1, 1, 1, 1}, std::vector<double>{1.0});
  const Tensor key = Tensor::from<double>({1, 1, 2, 1}, std::vector<double>{900.0, 899.0});
  const AttentionOptions options{.score = {.scale = 1.0}};
  const Steps safe = attention_steps({query, key, key}, options);
  EXPECT_NEAR(safe.weights.value({0, 0, 0, 0}), 1 / (1 + std::exp(-1.0)), kTight);
  const Steps naive = attention_steps({query, key, key}, options,
                                      {.normalization = Normalization::kSoftmaxUnshifted});
  EXPECT_TRUE(std::isnan(naive.weights.value({0, 0, 0, 0})));
  EXPECT_EQ(naive.lse.value({0, 0, 0}), kInfinity);
}

TEST(Reference, UnshiftedSoftmaxAgreesWithoutOverflow) {
  const RandomProblem problem({1, 2, 1, 3, 6}, 4, 3);
  const Steps a = attend(problem, {.mask = causal()});
  const Steps b =
      attend(problem, {.mask = causal()}, {.normalization = Normalization::kSoftmaxUnshifted});
  EXPECT_LT(max_difference(a.weights, b.weights), kTight);
  EXPECT_LT(max_difference(a.lse, b.lse), kTight);
}

TEST(Reference, DivisionByTheSum) {
  const RandomProblem problem({1, 1, 1, 1, 4}, 2, 2);
  const Steps steps = attend(problem, {}, {.normalization = Normalization::kSum});
  double sum = 0;
  for (std::int64_t j = 0; j < 4; ++j) sum += steps.scaled_scores.value({0, 0, 0, j});
  for (std::int64_t j = 0; j < 4; ++j) {
    EXPECT_NEAR(steps.weights.value({0, 0, 0, j}), steps.scaled_scores.value({0, 0, 0, j}) / sum,
                kTight);
  }
  EXPECT_NEAR(steps.row_sums.value({0, 0, 0}), 1.0, kTight);
}

TEST(Reference, OptionsOwnTheirTensors) {
  const RandomProblem problem({1, 1, 1, 2, 2}, 3, 2);
  AttentionOptions options;
  options.score.bias = Tensor::matrix({{0.5, -0.5}});  // a temporary, now owned by the options
  const AttentionOptions copy = options;
  options = {};
  const Steps steps = attend(problem, copy);
  EXPECT_EQ(steps.biased_scores.value({0, 0, 1, 0}), steps.scaled_scores.value({0, 0, 1, 0}) + 0.5);
}

TEST(Reference, VisibleMarksUnmaskedScores) {
  const RandomProblem problem({1, 1, 1, 2, 3}, 3, 2);
  const Tensor bias = Tensor::matrix({{0, -kInfinity, 0}});
  const Steps steps = attend(problem, {.mask = causal(), .score = {.bias = bias}});
  const std::vector<bool> expected = {true, false, false, true, false, true};
  const auto visible = steps.visible.span<bool>();
  EXPECT_EQ(std::vector<bool>(visible.begin(), visible.end()), expected);
}

TEST(Reference, ProjectIsAMatrixProduct) {
  const Tensor rows = Tensor::matrix({{1, 2}, {3, 4}});
  const Tensor weights = Tensor::matrix({{1, 0, -1}, {2, 1, 0}});
  EXPECT_EQ(max_difference(project(rows, weights), Tensor::matrix({{5, 2, -1}, {11, 4, -3}})), 0);
  EXPECT_EQ(project(rows, weights, DType::kFloat32).dtype(), DType::kFloat32);
}

TEST(Reference, HeadDimZeroGivesEqualWeights) {
  const RandomProblem problem({1, 1, 1, 2, 2}, 0, 1);
  EXPECT_EQ(attend(problem).weights.value({0, 0, 1, 1}), 0.5);
}

// ---- Layout, selection, arithmetic --------------------------------------------------------------

TEST(Reference, GroupedHeadsReadTheirKeyHead) {
  const RandomProblem grouped({2, 6, 2, 3, 4}, 5, 3);
  RandomProblem repeated({2, 6, 6, 3, 4}, 5, 3);
  repeated.query = grouped.query;
  for (Tensor RandomProblem::*part : {&RandomProblem::key, &RandomProblem::value}) {
    for_each_index((repeated.*part).shape(), [&](const Index& at) {
      (repeated.*part).at<double>(at) = (grouped.*part).value({at[0], at[1] / 3, at[2], at[3]});
    });
  }
  EXPECT_EQ(max_difference(attend(grouped).context, attend(repeated).context), 0.0);
}

TEST(Reference, StridesDoNotMatter) {
  const RandomProblem problem({2, 3, 3, 4, 5}, 3, 2);
  // The same values in [batch, length, heads, dim] layout.
  const Tensor query(problem.query.view().transposed(1, 2));
  const Tensor key(problem.key.view().transposed(1, 2));
  const Tensor value(problem.value.view().transposed(1, 2));
  const Steps steps = attention_steps(
      {query.view().transposed(1, 2), key.view().transposed(1, 2), value.view().transposed(1, 2)},
      {});
  EXPECT_EQ(max_difference(steps.context, attend(problem).context), 0.0);
}

TEST(Reference, RowsMatchTheStepsOfTheWhole) {
  const RandomProblem problem({2, 4, 2, 5, 7}, 3, 6);
  const AttentionOptions options{.mask = causal() & window(3, 0), .score = {.softcap = 2.0}};
  const std::vector<Row> rows = {{1, 3, 4}, {0, 0, 0}, {1, 2, 2}};
  const Steps all = attend(problem, options);
  const Rows some = attention_rows(problem.inputs(), options, rows);
  ASSERT_EQ(some.weights.shape(), (Shape{3, 7}));
  for (std::int64_t r = 0; r < 3; ++r) {
    const Row& row = rows[static_cast<std::size_t>(r)];
    const auto of = [&](const Tensor& tensor) {
      return tensor.view()[row.batch][row.head][row.query];
    };
    EXPECT_EQ(max_difference(some.weights.view()[r], of(all.weights)), 0.0);
    EXPECT_EQ(max_difference(some.context.view()[r], of(all.context)), 0.0);
    EXPECT_EQ(some.lse.value({r}), all.lse.value({row.batch, row.head, row.query}));
  }
}

TEST(Reference, RowsOfALongProblemNeedNoQuadraticMemory) {
  const std::int64_t length = 200000;  // a full matrix would hold 40 billion weights
  RandomState random(4);
  const Tensor x = random.randn({1, 1, length, 2});
  const std::vector<Row> rows = {{0, 0, 0}, {0, 0, length - 1}};
  const Rows found = attention_rows({x, x, x}, {.mask = causal()}, rows);
  EXPECT_EQ(max_difference(found.context.view()[0], x.view()[0][0][0]), 0.0);
  double sum = 0;
  for (const double weight : found.weights.span<double>().subspan(static_cast<std::size_t>(length)))
    sum += weight;
  EXPECT_NEAR(sum, 1.0, 1e-10);
}

TEST(Reference, Float32RoundsEveryOperation) {
  const RandomProblem problem({1, 1, 1, 8, 8}, 4, 4);
  const Steps exact = attend(problem);
  const Steps naive = attend(problem, {}, {.arithmetic = DType::kFloat32});
  EXPECT_EQ(naive.context.dtype(), DType::kFloat32);
  const double error = max_difference(naive.context, exact.context);
  EXPECT_GT(error, 0.0);
  EXPECT_LT(error, 1e-5);
  // One score by hand: float32 products and sums, in order.
  float score = 0;
  for (std::int64_t d = 0; d < 4; ++d) {
    score += static_cast<float>(problem.query.value({0, 0, 2, d})) *
             static_cast<float>(problem.key.value({0, 0, 5, d}));
  }
  EXPECT_EQ(naive.scores.at<float>({0, 0, 2, 5}), score);
}

TEST(Reference, EmptyProblems) {
  const RandomProblem no_queries({1, 1, 1, 0, 3}, 2, 2);
  EXPECT_EQ(attend(no_queries).context.shape(), (Shape{1, 1, 0, 2}));
  const RandomProblem no_keys({1, 1, 1, 3, 0}, 2, 2);
  const Steps steps = attend(no_keys);
  EXPECT_EQ(steps.context.value({0, 0, 2, 1}), 0.0);
  EXPECT_EQ(steps.lse.value({0, 0, 2}), -kInfinity);
}

// ---- Errors -------------------------------------------------------------------------------------

TEST(Reference, ErrorsNameArgumentExpectedAndActualValue) {
  const RandomProblem good({2, 4, 2, 3, 5}, 6, 7);
  const auto run = [&](const Inputs& in, const AttentionOptions& options = {},
                       const ReferenceOptions& how = {}) {
    return message_of([&] { attention_steps(in, options, how); });
  };
  const auto tensor = [](const Shape& shape) { return Tensor(DType::kFloat64, shape); };
  using testing::HasSubstr;
  EXPECT_EQ(run({{}, good.key, good.value}),
            "query: expected [batch, heads, length, dim], got nothing");
  EXPECT_EQ(run({tensor({3, 4}), good.key, good.value}),
            "query: expected [batch, heads, length, dim], got [3, 4]");
  EXPECT_EQ(run({Tensor(DType::kInt64, {2, 4, 3, 6}), good.key, good.value}),
            "query: expected float32, float64, float16 or bfloat16, got int64");
  EXPECT_EQ(run({good.query, tensor({2, 2, 5, 4}), good.value}),
            "key: expected dim 6 as query has, got 4");
  EXPECT_EQ(run({good.query, tensor({2, 3, 5, 6}), tensor({2, 3, 5, 7})}),
            "heads: expected q_heads to be a multiple of kv_heads, got 4 and 3");
  EXPECT_EQ(run({good.query, good.key, tensor({2, 2, 4, 7})}),
            "value: expected [batch, kv_heads, kv_len, value_dim] with kv_heads = 2 and kv_len = 5 "
            "as key has, got [2, 2, 4, 7]");
  EXPECT_THAT(run({good.query, tensor({1, 2, 5, 6}), good.value}), HasSubstr("batch: expected"));
  EXPECT_EQ(run(good.inputs(), {.score = {.scale = kNan}}),
            "scale: expected a finite number, got nan");
  EXPECT_EQ(run(good.inputs(), {.score = {.softcap = -1}}),
            "softcap: expected a finite number of 0 (off) or more, got -1");
  EXPECT_EQ(run(good.inputs(), {.score = {.sinks = {1.0}}}),
            "sinks: expected one number per query head (4), got 1");
  EXPECT_EQ(run(good.inputs(), {.score = {.alibi = Alibi{{1.0, 2.0}}}}),
            "alibi: expected one number per query head (4), got 2");
  EXPECT_EQ(run(good.inputs(), {.score = {.sinks = {1, 2, 3, 4}}},
                {.normalization = Normalization::kSum}),
            "sinks: a sink is a logit; division by the sum has none");
  EXPECT_EQ(run(good.inputs(), {}, {.arithmetic = DType::kInt64}),
            "arithmetic: expected float64, float32, float16 or bfloat16, got int64");
  const Tensor narrow = tensor({5, 6});
  const Tensor narrow_rows = tensor({2, 3});
  EXPECT_EQ(run(good.inputs(), {}, {.score_kind = GeneralScore{narrow}}),
            "general score weights: expected shape [6, 6], got [5, 6]");
  const Tensor bias = tensor({2, 3});
  EXPECT_EQ(run(good.inputs(), {.score = {.bias = bias}}),
            "bias: expected a shape that broadcasts to [batch, q_heads, q_len, kv_len] = "
            "[2, 4, 3, 5], got [2, 3]");
  EXPECT_EQ(run(good.inputs(), {.alignment = Alignment::offsets({1, 2, 3})}),
            "alignment: expected 1 offset or one per batch item (2), got 3");
  EXPECT_EQ(run(good.inputs(), {.alignment = Alignment::offset(std::int64_t{1} << 41)}),
            "alignment: expected offsets from -1099511627776 to 1099511627776, got 2199023255552");
  EXPECT_EQ(run(good.inputs(), {.score = {.bias = Tensor(DType::kBool, {3, 5})}}),
            "bias: expected float32, float64, float16 or bfloat16, got bool");
  EXPECT_EQ(run(good.inputs(), {.score = {.sinks = {0, 0, kInfinity, 0}}}),
            "sinks: expected numbers, got inf");
  EXPECT_EQ(run(good.inputs(), {.score = {.sinks = {0, 0, kNan, 0}}}),
            "sinks: expected numbers, got nan");
  EXPECT_EQ(run(good.inputs(), {.score = {.alibi = Alibi{{0, 0, 0, -kInfinity}}}}),
            "alibi: expected finite slopes, got -inf");
  EXPECT_EQ(run(good.inputs(), {.score = {.scale = 1e300}}, {.arithmetic = DType::kFloat32}),
            "scale: expected a number that float32 holds, got 1e+300");
  EXPECT_EQ(run(good.inputs(), {.score = {.softcap = 1e-60}}, {.arithmetic = DType::kFloat32}),
            "softcap: expected a number that float32 holds, got 1e-60");
  EXPECT_EQ(message_of([&] { project(narrow_rows, narrow_rows); }),
            "project: expected rows [..., dim] and weights [dim, columns], got [2, 3] and [2, 3]");
  const std::vector<Row> outside = {{0, 0, 3}};
  EXPECT_EQ(message_of([&] { attention_rows(good.inputs(), {}, outside); }),
            "row: expected [batch, head, query] within [2, 4, 3], got [0, 0, 3]");
}

}  // namespace
}  // namespace fovea::reference
