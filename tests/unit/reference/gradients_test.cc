// SPDX-License-Identifier: Apache-2.0
//
// The reference's gradients against closed forms and properties that hold for any input, including
// masked inputs; sums over parts; and errors. (support/differences_test.cc checks all options.)

#include "reference/gradients.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/mask.h"
#include "fovea/random.h"
#include "fovea/reference.h"
#include "fovea/tensor.h"

#include "support/differences.h"
#include "support/exactness.h"
#include "support/limits.h"
#include "support/message_of.h"
#include "support/random_problem.h"

namespace fovea::reference {
namespace {

using test::fill;
using test::kInfinity;
using test::kNan;
using test::kTight;
using test::Loss;
using test::max_difference;
using test::message_of;
using test::RandomProblem;
using test::same_bits;

using Numbers = std::vector<double>;

Tensor numbers(const Shape& shape, const Numbers& of) { return Tensor::from<double>(shape, of); }

/// Calls `visit(name, gradient of a, gradient of b)` for each defined gradient.
void for_each_gradient(
    const Gradients& a, const Gradients& b,
    const std::function<void(const char*, const Tensor&, const Tensor&)>& visit) {
  visit("query", a.query, b.query);
  visit("key", a.key, b.key);
  visit("value", a.value, b.value);
  ASSERT_EQ(a.bias.defined(), b.bias.defined());
  ASSERT_EQ(a.relative.defined(), b.relative.defined());
  ASSERT_EQ(a.sinks.defined(), b.sinks.defined());
  if (a.bias.defined()) visit("bias", a.bias, b.bias);
  if (a.relative.defined()) visit("relative", a.relative, b.relative);
  if (a.sinks.defined()) visit("sinks", a.sinks, b.sinks);
}

void expect_same_bits(const Gradients& a, const Gradients& b) {
  for_each_gradient(a, b, [](const char* name, const Tensor& x, const Tensor& y) {
    EXPECT_TRUE(same_bits(x, y)) << name;
  });
}

void expect_near(const Gradients& a, const Gradients& b, double tolerance = kTight) {
  for_each_gradient(a, b, [&](const char* name, const Tensor& x, const Tensor& y) {
    EXPECT_LE(max_difference(x, y), tolerance) << name;
  });
}

// ---- Closed forms -------------------------------------------------------------------------------

TEST(ReferenceGradients, TwoKeysByHand) {
  // Weights p and 1 - p, values 2 and -1: the context is 3 p - 1.
  const Tensor query = numbers({1, 1, 1, 1}, {1.0}), key = numbers({1, 1, 2, 1}, {0.3, -1.1});
  const Tensor value = numbers({1, 1, 2, 1}, {2.0, -1.0}), one = numbers({1, 1, 1, 1}, {1.0});
  const Gradients found =
      attention_gradients({query, key, value}, {.context = one}, {.score = {.scale = 1.0}});
  const double p = 1 / (1 + std::exp(-1.4));
  EXPECT_NEAR(found.value.value({0, 0, 0, 0}), p, kTight);
  EXPECT_NEAR(found.value.value({0, 0, 1, 0}), 1 - p, kTight);
  EXPECT_NEAR(found.key.value({0, 0, 0, 0}), 3 * p * (1 - p), kTight);
  EXPECT_NEAR(found.key.value({0, 0, 1, 0}), -3 * p * (1 - p), kTight);
  EXPECT_NEAR(found.query.value({0, 0, 0, 0}), 1.4 * 3 * p * (1 - p), kTight);
  EXPECT_FALSE(found.bias.defined() || found.relative.defined() || found.sinks.defined());
}

TEST(ReferenceGradients, OneKeyHasOnlyAValueGradient) {
  const RandomProblem p({2, 4, 2, 3, 1}, 5, 6);
  const Loss loss({2, 4, 2, 3, 1}, 6, {.lse = false});
  const Gradients found = attention_gradients(p.inputs(), loss.gradients(), {});
  EXPECT_LE(max_difference(found.query, Tensor(DType::kFloat64, found.query.shape())), kTight);
  EXPECT_LE(max_difference(found.key, Tensor(DType::kFloat64, found.key.shape())), kTight);
  for_each_index(found.value.shape(), [&](const Index& at) {
    double sum = 0.0;
    for (std::int64_t head = 2 * at[1]; head < 2 * at[1] + 2; ++head) {
      for (std::int64_t query = 0; query < 3; ++query)
        sum += loss.context.value({at[0], head, query, at[3]});
    }
    EXPECT_NEAR(found.value.value(at), sum, kTight);
  });
}

TEST(ReferenceGradients, LseGradientsOfScoresAreTheWeights) {
  const ProblemShape shape{2, 2, 1, 4, 5};
  const RandomProblem p(shape, 3, 2);
  const Tensor bias(DType::kFloat64, {2, 2, 4, 5});
  const AttentionOptions options{.mask = causal(), .score = {.bias = bias, .sinks = {0.5, -1}}};
  Tensor ones(DType::kFloat64, {2, 2, 4});
  fill(ones, 1.0);
  const Gradients found = attention_gradients(p.inputs(), {.lse = ones}, options);
  const Steps steps = attention_steps(p.inputs(), options);
  EXPECT_LE(max_difference(found.bias, steps.weights), kTight);
  for (std::int64_t head = 0; head < 2; ++head) {
    double shares = 0.0;
    for (std::int64_t row = 0; row < 8; ++row) {
      shares += 1.0 - steps.row_sums.value({row / 4, head, row % 4});
    }
    EXPECT_NEAR(found.sinks.value({head}), shares, kTight);
  }
  EXPECT_EQ(max_difference(found.value, Tensor(DType::kFloat64, found.value.shape())), 0.0);
}

TEST(ReferenceGradients, WeightGradientsMatchAnIdentityValue) {
  RandomProblem p({2, 4, 2, 3, 5}, 4, 5);
  for_each_index(p.value.shape(),
                 [&](const Index& at) { p.value.at<double>(at) = at[2] == at[3] ? 1.0 : 0.0; });
  const Tensor of_weights = RandomState(3).randn({2, 4, 3, 5});
  const AttentionOptions options{.mask = causal(), .score = {.softcap = 2.0}};
  const Gradients by_weights = attention_gradients(p.inputs(), {.weights = of_weights}, options);
  const Gradients by_context = attention_gradients(p.inputs(), {.context = of_weights}, options);
  EXPECT_LE(max_difference(by_weights.query, by_context.query), kTight);
  EXPECT_LE(max_difference(by_weights.key, by_context.key), kTight);
  EXPECT_EQ(max_difference(by_weights.value, Tensor(DType::kFloat64, by_weights.value.shape())), 0);
}

TEST(ReferenceGradients, WeightGradientsApplyBeforeDropout) {
  const RandomProblem p({1, 2, 2, 3, 6}, 4, 5);
  const Tensor of_weights = RandomState(3).randn({1, 2, 3, 6});
  const AttentionOptions dropout{.dropout = {.probability = 0.5, .seed = 1}};
  expect_same_bits(attention_gradients(p.inputs(), {.weights = of_weights}, dropout),
                   attention_gradients(p.inputs(), {.weights = of_weights}, {}));
}

// ---- Properties ---------------------------------------------------------------------------------

constexpr ProblemShape kGradientsShape{2, 4, 2, 5, 7};
constexpr std::int64_t kGradientsHeadDim = 3, kGradientsValueDim = 4;

/// A problem that combines all options with gradients: mask, softcap, bias, relative table, sinks
/// and dropout.
class ReferenceGradientsOfAll : public testing::Test {
 protected:
  ReferenceGradientsOfAll() {
    options_.mask = causal() | prefix(2);
    options_.score.softcap = 2.5;
    options_.score.bias = RandomState(20).randn({4, 1, 7});
    options_.score.relative = RelativeTable{RandomState(21).randn({8, 4}), true, 6};
    options_.score.sinks = {0.5, -1.0, 2.0, 0.0};
    options_.dropout = {.probability = 0.25, .seed = 9, .call = 1};
  }

  Gradients gradients(const OutputGradients& outputs) const {
    return attention_gradients(problem_.inputs(), outputs, options_);
  }

  RandomProblem problem_{kGradientsShape, kGradientsHeadDim, kGradientsValueDim};
  Loss loss_{kGradientsShape, kGradientsValueDim};
  AttentionOptions options_;
};

TEST_F(ReferenceGradientsOfAll, AreLinearInTheOutputGradients) {
  const Loss other(kGradientsShape, kGradientsValueDim, {}, 1001);
  Loss sum = loss_;
  for (Tensor Loss::*part : {&Loss::context, &Loss::lse, &Loss::weights}) {
    for_each_index((sum.*part).shape(), [&](const Index& at) {
      (sum.*part).at<double>(at) = 2.0 * (loss_.*part).value(at) - 0.5 * (other.*part).value(at);
    });
  }
  const Gradients a = gradients(loss_.gradients()), b = gradients(other.gradients());
  Gradients joined = a;
  for (Tensor Gradients::*part : {&Gradients::query, &Gradients::key, &Gradients::value,
                                  &Gradients::bias, &Gradients::relative, &Gradients::sinks}) {
    for_each_index((joined.*part).shape(), [&](const Index& at) {
      (joined.*part).at<double>(at) = 2.0 * (a.*part).value(at) - 0.5 * (b.*part).value(at);
    });
  }
  expect_near(gradients(sum.gradients()), joined);
}

TEST_F(ReferenceGradientsOfAll, AreSumsOverTheOutputs) {
  Gradients sum = gradients({});
  for (const OutputGradients& one :
       {OutputGradients{.context = loss_.context}, OutputGradients{.lse = loss_.lse},
        OutputGradients{.weights = loss_.weights}}) {
    const Gradients of_one = gradients(one);
    for (Tensor Gradients::*part : {&Gradients::query, &Gradients::key, &Gradients::value,
                                    &Gradients::bias, &Gradients::relative, &Gradients::sinks}) {
      for_each_index((sum.*part).shape(), [&](const Index& at) {
        (sum.*part).at<double>(at) += (of_one.*part).value(at);
      });
    }
  }
  expect_near(gradients(loss_.gradients()), sum);
}

TEST_F(ReferenceGradientsOfAll, AreZeroWithoutOutputGradients) {
  const Gradients found = gradients({});
  expect_same_bits(found, zero_gradients(problem_.inputs(), options_));
  for_each_gradient(found, found, [](const char* name, const Tensor& x, const Tensor&) {
    EXPECT_TRUE(test::all_are(x, 0.0)) << name;
  });
}

TEST_F(ReferenceGradientsOfAll, DoNotDependOnStridesAndTypes) {
  // The same values in another layout, in every type that represents them exactly.
  for (Tensor* tensor : {&problem_.query, &problem_.key, &problem_.value, &loss_.context,
                         &loss_.lse, &loss_.weights}) {
    *tensor = convert(convert(*tensor, DType::kBFloat16), DType::kFloat64);
  }
  const Gradients expected = gradients(loss_.gradients());
  for (const DType type : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
    std::vector<Tensor> turned;
    turned.reserve(6);
    const auto turn = [&](const TensorView& view) {
      turned.push_back(convert(view.transposed(1, 2), type));
      return TensorView(turned.back()).transposed(1, 2);
    };
    const Inputs inputs{turn(problem_.query), turn(problem_.key), turn(problem_.value)};
    const OutputGradients outputs{turn(loss_.context), turn(loss_.lse), turn(loss_.weights)};
    expect_same_bits(attention_gradients(inputs, outputs, options_), expected);
  }
}

TEST_F(ReferenceGradientsOfAll, HeadsInAnyOrderAddUpToTheWhole) {
  const Gradients expected = gradients(loss_.gradients());
  // Adds the gradients from the queries that read this key head.
  const auto add = [&](std::int64_t batch, std::int64_t kv_head, Gradients& sums) {
    std::vector<Row> rows;
    const std::int64_t group = kGradientsShape.q_heads / kGradientsShape.kv_heads;
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (std::int64_t query = 0; query < kGradientsShape.q_len; ++query) {
        rows.push_back({batch, head, query});
      }
    }
    add_row_gradients(problem_.inputs(), loss_.gradients(), options_, rows, {}, sums);
  };
  Gradients sums = zero_gradients(problem_.inputs(), options_);
  // Heads in any order, but the batch items of each head in ascending order.
  for (const std::int64_t head : {1, 0}) {
    for (std::int64_t batch = 0; batch < kGradientsShape.batch; ++batch) add(batch, head, sums);
  }
  expect_same_bits(sums, expected);

  // Undefined gradients are not computed.
  Gradients few = zero_gradients(problem_.inputs(), options_);
  few.bias = few.relative = few.sinks = Tensor();
  for (const std::int64_t part : {3, 1, 0, 2}) add(part / 2, part % 2, few);
  EXPECT_FALSE(few.bias.defined() || few.relative.defined() || few.sinks.defined());
  EXPECT_TRUE(same_bits(few.query, expected.query));
  EXPECT_TRUE(same_bits(few.key, expected.key));
  EXPECT_TRUE(same_bits(few.value, expected.value));
}

TEST(ReferenceGradients, PermutedKeysPermuteTheirGradients) {
  const RandomProblem p({1, 2, 2, 3, 6}, 4, 5);
  const Loss loss({1, 2, 2, 3, 6}, 5, {.weights = false});
  const std::vector<std::int64_t> order = {3, 0, 5, 1, 4, 2};
  const auto permuted = [&](const Tensor& rows) {
    Tensor result = rows;
    for_each_index(rows.shape(), [&](const Index& at) {
      result.at<double>(at) =
          rows.value({at[0], at[1], order[static_cast<std::size_t>(at[2])], at[3]});
    });
    return result;
  };
  Gradients expected = attention_gradients(p.inputs(), loss.gradients(), {});
  expected.key = permuted(expected.key);
  expected.value = permuted(expected.value);
  const Tensor key = permuted(p.key), value = permuted(p.value);
  expect_near(attention_gradients({p.query, key, value}, loss.gradients(), {}), expected);
}

TEST(ReferenceGradients, GroupedHeadsSumTheirGradients) {
  const ProblemShape shape{2, 6, 2, 3, 4};
  const RandomProblem grouped(shape, 5, 3);
  const Loss loss(shape, 3);
  RandomProblem repeated({2, 6, 6, 3, 4}, 5, 3);
  repeated.query = grouped.query;
  for (Tensor RandomProblem::*part : {&RandomProblem::key, &RandomProblem::value}) {
    for_each_index((repeated.*part).shape(), [&](const Index& at) {
      (repeated.*part).at<double>(at) = (grouped.*part).value({at[0], at[1] / 3, at[2], at[3]});
    });
  }
  const Gradients apart = attention_gradients(repeated.inputs(), loss.gradients(), {});
  Gradients joined = zero_gradients(grouped.inputs(), {});
  joined.query = apart.query;
  for (Tensor Gradients::*part : {&Gradients::key, &Gradients::value}) {
    for_each_index((apart.*part).shape(), [&](const Index& at) {
      (joined.*part).at<double>({at[0], at[1] / 3, at[2], at[3]}) += (apart.*part).value(at);
    });
  }
  expect_near(attention_gradients(grouped.inputs(), loss.gradients(), {}), joined);
}

TEST(ReferenceGradients, BroadcastBiasesSumTheirGradients) {
  const RandomProblem p(kGradientsShape, kGradientsHeadDim, kGradientsValueDim);
  const Loss loss(kGradientsShape, kGradientsValueDim);
  const Tensor small = RandomState(30).randn({4, 1, 7});
  Tensor large(DType::kFloat64, {2, 4, 5, 7});
  for_each_index(large.shape(), [&](const Index& at) {
    large.at<double>(at) = small.value({at[1], 0, at[3]});
  });
  const Gradients of_large =
      attention_gradients(p.inputs(), loss.gradients(), {.score = {.bias = large}});
  Tensor sums(DType::kFloat64, small.shape());
  for_each_index(large.shape(), [&](const Index& at) {
    sums.at<double>({at[1], 0, at[3]}) += of_large.bias.value(at);
  });
  const Gradients of_small =
      attention_gradients(p.inputs(), loss.gradients(), {.score = {.bias = small}});
  EXPECT_LE(max_difference(of_small.bias, sums), kTight);
  EXPECT_TRUE(same_bits(of_small.query, of_large.query));
}

TEST(ReferenceGradients, PackedSequencesMatchEachSequenceAlone) {
  const std::vector<std::int64_t> queries{0, 3, 3, 8}, keys{0, 4, 6, 11};
  const ProblemShape shape{1, 2, 1, 8, 11, 3};
  const RandomProblem p(shape, kGradientsHeadDim, kGradientsValueDim);
  const Loss loss(shape, kGradientsValueDim);
  const AttentionOptions packed{.mask = causal(), .sequences = {queries, keys}};
  const Gradients found = attention_gradients(p.inputs(), loss.gradients(), packed);
  // Returns rows `begin` to `end` of a [1, heads, length, dim] tensor.
  const auto part = [](const Tensor& of, std::int64_t begin, std::int64_t end) {
    Tensor result(DType::kFloat64, {1, of.extent(1), end - begin, of.extent(3)});
    for_each_index(result.shape(), [&](const Index& at) {
      result.at<double>(at) = of.value({0, at[1], begin + at[2], at[3]});
    });
    return result;
  };
  for (std::size_t s = 0; s < 3; ++s) {
    const std::int64_t q = queries[s], q_end = queries[s + 1], k = keys[s], k_end = keys[s + 1];
    const Tensor query = part(p.query, q, q_end), key = part(p.key, k, k_end);
    const Tensor value = part(p.value, k, k_end), of_context = part(loss.context, q, q_end);
    Tensor of_lse(DType::kFloat64, {1, 2, q_end - q});
    Tensor of_weights(DType::kFloat64, {1, 2, q_end - q, k_end - k});
    for_each_index(of_weights.shape(), [&](const Index& at) {
      of_lse.at<double>({0, at[1], at[2]}) = loss.lse.value({0, at[1], q + at[2]});
      of_weights.at<double>(at) = loss.weights.value({0, at[1], q + at[2], k + at[3]});
    });
    const Gradients alone = attention_gradients(
        {query, key, value}, {of_context, of_lse, of_weights}, {.mask = causal()});
    EXPECT_TRUE(same_bits(part(found.query, q, q_end), alone.query)) << s;
    EXPECT_TRUE(same_bits(part(found.key, k, k_end), alone.key)) << s;
    EXPECT_TRUE(same_bits(part(found.value, k, k_end), alone.value)) << s;
  }
}

// ---- Masked inputs ------------------------------------------------------------------------------

TEST(ReferenceGradients, MaskedInputsAreIgnoredAndGetZeroGradients) {
  // Keys 5 and 6 are padding, and queries 0 to 2 see nothing.
  const ProblemShape shape{1, 2, 1, 6, 7};
  const AttentionOptions options{.mask = causal() & key_lengths({5}),
                                 .alignment = Alignment::offset(-3)};
  RandomProblem p(shape, kGradientsHeadDim, kGradientsValueDim);
  Loss loss(shape, kGradientsValueDim);
  const Gradients clean = attention_gradients(p.inputs(), loss.gradients(), options);
  const Steps steps = attention_steps(p.inputs(), options);
  for (const double poison : {kNan, kInfinity, -kInfinity}) {
    RandomProblem poisoned = p;
    Loss spoiled = loss;
    const auto spoil = [&](Tensor& tensor, const auto& hidden) {
      for_each_index(tensor.shape(), [&](const Index& at) {
        if (hidden(at)) tensor.at<double>(at) = poison;
      });
    };
    const auto unseen_key = [&](const Index& at) { return at[2] >= 3; };  // masked for all queries
    const auto blind_query = [&](const Index& at) { return at[2] <= 2; };
    spoil(poisoned.key, unseen_key);
    spoil(poisoned.value, unseen_key);
    spoil(poisoned.query, blind_query);
    spoil(spoiled.context, blind_query);
    spoil(spoiled.lse, blind_query);
    spoil(spoiled.weights, [&](const Index& at) { return steps.visible.value(at) == 0.0; });
    const Gradients found = attention_gradients(poisoned.inputs(), spoiled.gradients(), options);
    expect_same_bits(found, clean);
    for_each_index(found.key.shape(),
                   [&](const Index& at) { EXPECT_EQ(found.key.value(at) == 0.0, unseen_key(at)); });
    for_each_index(found.value.shape(), [&](const Index& at) {
      EXPECT_EQ(found.value.value(at) == 0.0, unseen_key(at));
    });
    for_each_index(found.query.shape(), [&](const Index& at) {
      EXPECT_EQ(found.query.value(at) == 0.0, blind_query(at));
    });
  }
}

TEST(ReferenceGradients, NanReachesOnlyQueriesThatSeeItsKey) {
  // Only the last query sees key 2.
  RandomProblem p({1, 1, 1, 3, 3}, kGradientsHeadDim, kGradientsValueDim);
  const Loss loss({1, 1, 1, 3, 3}, kGradientsValueDim);
  p.value.at<double>({0, 0, 2, 1}) = kNan;
  const Gradients found = attention_gradients(p.inputs(), loss.gradients(), {.mask = causal()});
  for_each_index(found.query.shape(), [&](const Index& at) {
    EXPECT_EQ(std::isnan(found.query.value(at)), at[2] == 2) << to_string(at);
  });
  for (const double x : found.value.span<double>()) EXPECT_TRUE(std::isfinite(x));
}

TEST(ReferenceGradients, ScoreOfMinusInfinityActsAsAMask) {
  const ProblemShape shape{1, 1, 1, 2, 4};
  RandomProblem p(shape, kGradientsHeadDim, kGradientsValueDim);
  const Loss loss(shape, kGradientsValueDim);
  Tensor bias = RandomState(2).randn({2, 4});
  bias.at<double>({0, 1}) = bias.at<double>({1, 1}) = -kInfinity;
  Tensor open(DType::kBool, {4});
  for (const std::int64_t key : {0, 2, 3}) open.at<bool>({key}) = true;
  Tensor unmasked = bias;
  unmasked.at<double>({0, 1}) = unmasked.at<double>({1, 1}) = 0.0;
  const Gradients masked = attention_gradients(p.inputs(), loss.gradients(),
                                               {.mask = dense(open), .score = {.bias = unmasked}});
  for (std::int64_t d = 0; d < kGradientsHeadDim; ++d) p.key.at<double>({0, 0, 1, d}) = kNan;
  p.value.at<double>({0, 0, 1, 0}) = kInfinity;
  expect_same_bits(attention_gradients(p.inputs(), loss.gradients(), {.score = {.bias = bias}}),
                   masked);
  EXPECT_EQ(masked.bias.value({1, 1}), 0.0);
}

TEST(ReferenceGradients, FullyMaskedRowsPassOnlyTheLseGradientToSinks) {
  const RandomProblem p({1, 1, 1, 2, 3}, kGradientsHeadDim, kGradientsValueDim);
  const Loss loss({1, 1, 1, 2, 3}, kGradientsValueDim);
  const Gradients found = attention_gradients(p.inputs(), loss.gradients(),
                                              {.mask = prefix(0), .score = {.sinks = {7}}});
  EXPECT_EQ(found.sinks.value({0}), loss.lse.value({0, 0, 0}) + loss.lse.value({0, 0, 1}));
  EXPECT_TRUE(test::all_are(found.query, 0.0));
  EXPECT_TRUE(test::all_are(found.key, 0.0));
  EXPECT_TRUE(test::all_are(found.value, 0.0));
}

TEST(ReferenceGradients, LongProblemsNeedNoQuadraticMemory) {
  // A full matrix would hold 40 billion weights.
  const std::int64_t length = 200000, part = 4;
  const Tensor x = RandomState(4).randn({1, 1, length, 2});
  std::vector<std::int64_t> starts;
  for (std::int64_t start = 0; start <= length; start += part) starts.push_back(start);
  const Gradients found =
      attention_gradients({x, x, x}, {.context = x}, {.sequences = {starts, starts}});
  const Tensor last =
      numbers({1, 1, part, 2}, {x.span<double>().end() - 2 * part, x.span<double>().end()});
  const Gradients alone = attention_gradients({last, last, last}, {.context = last}, {});
  for_each_index({part, 2}, [&](const Index& at) {
    const Index whole{0, 0, length - part + at[0], at[1]}, own{0, 0, at[0], at[1]};
    EXPECT_EQ(found.query.value(whole), alone.query.value(own));
    EXPECT_EQ(found.key.value(whole), alone.key.value(own));
    EXPECT_EQ(found.value.value(whole), alone.value.value(own));
  });
}

// ---- Errors -------------------------------------------------------------------------------------

TEST(ReferenceGradients, ErrorsNameArgumentExpectedAndActualValue) {
  const RandomProblem good(kGradientsShape, kGradientsHeadDim, kGradientsValueDim);
  const auto run = [&](const OutputGradients& outputs, const AttentionOptions& options = {},
                       const ReferenceOptions& how = {}) {
    return message_of([&] { attention_gradients(good.inputs(), outputs, options, how); });
  };
  const auto tensor = [](const Shape& shape) { return Tensor(DType::kFloat64, shape); };
  EXPECT_EQ(run({}), "no error");
  EXPECT_EQ(run({.context = tensor({2, 4, 5, 3})}),
            "grad_context: expected shape [2, 4, 5, 4], got [2, 4, 5, 3]");
  EXPECT_EQ(run({.context = Tensor(DType::kInt64, {2, 4, 5, 4})}),
            "grad_context: expected float32, float64, float16 or bfloat16, got int64");
  EXPECT_EQ(run({.lse = tensor({2, 4, 5, 1})}),
            "grad_lse: expected shape [2, 4, 5], got [2, 4, 5, 1]");
  EXPECT_EQ(run({.weights = tensor({2, 2, 5, 7})}),
            "grad_weights: expected shape [2, 4, 5, 7], got [2, 2, 5, 7]");
  EXPECT_EQ(run({}, {}, {.score_kind = GeneralScore{tensor({3, 3})}}),
            "score kind: expected the dot score, the only one with gradients, got the "
            "general score");
  EXPECT_EQ(run({}, {}, {.score_kind = AdditiveScore{tensor({3, 2}), tensor({3, 2}), tensor({2})}}),
            "score kind: expected the dot score, the only one with gradients, got the "
            "additive score");
  EXPECT_EQ(run({}, {}, {.normalization = Normalization::kSum}),
            "normalization: expected softmax, the only one with gradients, got division by "
            "the sum");
  EXPECT_EQ(run({}, {}, {.normalization = Normalization::kSoftmaxUnshifted}),
            "normalization: expected softmax, the only one with gradients, got softmax "
            "unshifted");
  EXPECT_EQ(run({}, {.score = {.sinks = {1.0}}}),
            "sinks: expected one number per query head (4), got 1");
  EXPECT_EQ(run({}, {.dropout = {.probability = 1.0}}),
            "dropout: expected a probability from 0 up to, but not, 1, got 1");
  EXPECT_EQ(run({}, {}, {.arithmetic = DType::kBool}),
            "arithmetic: expected float64, float32, float16 or bfloat16, got bool");
  EXPECT_EQ(message_of([&] {
              attention_gradients({good.query, tensor({2, 2, 7, 4}), good.value}, {}, {});
            }),
            "key: expected dim 3 as query has, got 4");
}

}  // namespace
}  // namespace fovea::reference
