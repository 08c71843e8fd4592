// SPDX-License-Identifier: Apache-2.0
//
// The lens of the backward pass: the effect of each weight on the loss, summed over the queries.
// The lens is checked by definition and against the oracle, and must not affect gradients.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_backward.h"
#include "fovea/mask.h"
#include "fovea/random.h"
#include "fovea/reference.h"

#include "support/backward.h"
#include "support/limits.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

/// Requests no gradients.
constexpr Asked kNothing{false, false, false, false, false, false};

/// The results of a call with the lens.
struct Watched {
  reference::Gradients gradients;
  Tensor relevance, magnitude;
};

Watched watch(const reference::Inputs& in, const Forward& results, const AttentionOptions& options,
              const ResultLoss& loss, const Asked& asked = {}) {
  const ProblemShape shape = shape_of(in, options);
  const DType type = in.query.dtype();
  Watched found;
  found.gradients = fresh_gradients(in, options, asked, type);
  for (Tensor* lens : {&found.relevance, &found.magnitude}) {
    *lens = Tensor(lse_type(type), {shape.batch, shape.q_heads, shape.kv_len});
    fill(*lens, kUntouched);
  }
  const BackwardLenses lenses{.relevance = found.relevance, .magnitude = found.magnitude};
  AttentionGradients to = views_of(found.gradients);
  to.lenses = &lenses;
  attention_backward(backward_inputs(in, results, loss), options, to);
  return found;
}

Tensor sizes_of(const TensorView& tensor) {
  Tensor sizes = convert(tensor, DType::kFloat64);
  change_all(sizes, [](double x) { return std::abs(x); });
  return sizes;
}

/// Checks a lens against the oracle. The relative error of a weight comes from the rounding of its
/// score and lse and, in bfloat16, from the polynomial; the error of dP comes from the
/// products summed in dP, ignoring cancellation.
void expect_right(const Watched& found, const reference::Inputs& in,
                  const AttentionOptions& options, const ResultLoss& loss) {
  const ProblemShape shape = shape_of(in, options);
  const reference::Gradients exact = gradients_by_reference(in, options, loss, DType::kFloat64);
  const Tensor value = sizes_of(in.value), grad = sizes_of(loss.context);
  const Tensor sizes =
      reference::attention_gradients({in.query, in.key, value}, {.context = grad}, options)
          .magnitude;
  const double scores = 2 * size_of_products(in, options, all_rows(shape)) +
                        size_of_biases(shape, options) +
                        std::log(static_cast<double>(shape.kv_len) + 1.0);
  const double rough = in.query.dtype() == DType::kBFloat16 ? 1.2e-4 : 0.0;
  const double rounding = kRounding * (8 + 4 * scores) + rough;
  for_each_index(sizes.shape(), [&](const Index& at) {
    const double allowed = rounding * sizes.value(at) + 1e-36;
    ASSERT_NEAR(found.relevance.value(at), exact.relevance.value(at), allowed) << to_string(at);
    ASSERT_NEAR(found.magnitude.value(at), exact.magnitude.value(at), allowed) << to_string(at);
  });
}

// ---- Definition ---------------------------------------------------------------------------------

TEST(AttentionBackwardLenses, RelevanceIsTheLinearLossOfRemovingAKey) {
  const RandomProblem p({2, 4, 2, 9, 13}, 5, 3);
  for (const AttentionOptions& options :
       {AttentionOptions{.mask = causal()}, AttentionOptions{.score = {.sinks = {0, 1, -1, 2}}},
        AttentionOptions{.score = {.softcap = 1.0}, .dropout = {.probability = 0.4, .seed = 3}}}) {
    const ResultLoss loss = random_loss(p.inputs(), true, 77, DType::kFloat64);
    const reference::Steps steps = reference::attention_steps(p.inputs(), options);
    const Tensor& weights = steps.dropped_weights.defined() ? steps.dropped_weights : steps.weights;
    const Watched found = watch(p.inputs(), forward(p.inputs(), options), options, loss);
    for_each_index(found.relevance.shape(), [&](const Index& at) {
      double gone = 0.0, size = 0.0;
      for (std::int64_t i = 0; i < 9; ++i) {
        double part = 0.0;
        for (std::int64_t c = 0; c < 3; ++c) {
          part += loss.context.value({at[0], at[1], i, c}) *
                  weights.value({at[0], at[1], i, at[2]}) *
                  p.value.value({at[0], at[1] / 2, at[2], c});
        }
        gone += part;
        size += std::abs(part);
      }
      ASSERT_NEAR(found.relevance.value(at), gone, 1e-14) << to_string(at);
      ASSERT_NEAR(found.magnitude.value(at), size, 1e-14) << to_string(at);
    });
  }
}

TEST(AttentionBackwardLenses, SumsToTheGradientTimesTheContext) {
  const ProblemShape shape{2, 4, 2, 90, 300};
  const RandomProblem p = stored_problem(shape, 16, 24);
  const AttentionOptions options{.mask = causal(), .score = {.softcap = 3.0}};
  const ResultLoss loss = random_loss(p.inputs(), false);
  const Forward results = forward(p.inputs(), options);
  const Watched found = watch(p.inputs(), results, options, loss, kNothing);
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.q_heads; ++h) {
      double of_keys = 0.0, of_rows = 0.0, size = 0.0;
      for (std::int64_t j = 0; j < shape.kv_len; ++j) {
        of_keys += found.relevance.value({b, h, j});
        size += found.magnitude.value({b, h, j});
      }
      for (std::int64_t i = 0; i < shape.q_len; ++i) {
        for (std::int64_t c = 0; c < 24; ++c) {
          of_rows += loss.context.value({b, h, i, c}) * results.context.value({b, h, i, c});
        }
      }
      // The context is rounded to the storage type.
      EXPECT_NEAR(of_keys, of_rows, (rounding_of(storage()) / 4 + 16 * kRounding) * size);
    }
  }
}

// ---- Against the oracle -------------------------------------------------------------------------

struct LensCase {
  std::string name;
  ProblemShape shape;
  AttentionOptions options;
};

/// Returns problems with at least two blocks of keys that cover all code paths of the kernel.
std::vector<LensCase> lens_cases() {
  constexpr ProblemShape kShape{2, 4, 2, 53, 200};
  constexpr ProblemShape kPacked{1, 4, 2, 150, 500, 4};
  Tensor open = convert(RandomState(3).randint(0, 2, {53, 200}), DType::kBool);
  Tensor bias = convert(RandomState(4).randn({53, 200}), DType::kFloat32);
  const RelativeTable table{RandomState(5).randn({32, 4})};
  return {{"plain", kShape, {}},
          {"one head in several blocks", {1, 1, 1, 70, 700}, {.mask = causal()}},
          {"several groups of queries", {1, 2, 1, 300, 200}, {.mask = window(90, 9)}},
          {"causal", kShape, {.mask = causal()}},
          {"window", kShape, {.mask = window(60, 9), .alignment = Alignment::offset(117)}},
          {"key lengths", kShape, {.mask = key_lengths({0, 133})}},
          {"dense", kShape, {.mask = dense(std::move(open)), .score = {.sinks = {0, 1, 2, 3}}}},
          {"softcap", kShape, {.mask = causal(), .score = {.softcap = 2.0, .alibi = Alibi{}}}},
          {"bias", kShape, {.score = {.bias = std::move(bias)}}},
          {"relative", kShape, {.mask = causal(), .score = {.relative = table}}},
          {"dropout", kShape, {.mask = causal(), .dropout = {.probability = 0.3, .seed = 9}}},
          {"packed",
           kPacked,
           {.mask = causal(), .sequences = {{0, 10, 10, 120, 150}, {0, 300, 320, 320, 500}}}}};
}

TEST(AttentionBackwardLenses, MatchTheOracleAndDoNotChangeGradients) {
  for (const LensCase& one : lens_cases()) {
    SCOPED_TRACE(one.name);
    const RandomProblem p = stored_problem(one.shape, 17, 9);
    const ResultLoss loss = random_loss(p.inputs());
    const Forward results = forward(p.inputs(), one.options);
    const Watched found = watch(p.inputs(), results, one.options, loss);
    expect_right(found, p.inputs(), one.options, loss);
    const auto unwatched = backward_of(p.inputs(), results, one.options, loss, {}, storage());
    EXPECT_TRUE(same_bits(found.gradients, unwatched));
    const Watched alone = watch(p.inputs(), results, one.options, loss, kNothing);
    EXPECT_TRUE(same_bits(alone.relevance, found.relevance));
    EXPECT_TRUE(same_bits(alone.magnitude, found.magnitude));
  }
}

TEST(AttentionBackwardLenses, AwkwardSizes) {
  int number = 0;
  for (const std::int64_t q_len : {1, 2, 8, 16, 25, 47, 49, 97}) {
    for (const std::int64_t kv_len : {1, 3, 7, 16, 17, 129, 200}) {
      SCOPED_TRACE(testing::Message() << q_len << " x " << kv_len);
      const RandomProblem p = stored_problem({1, 3, 1, q_len, kv_len}, 1 + number % 35, 59);
      const AttentionOptions options{.mask = number++ % 2 == 0 ? causal() : Mask()};
      const ResultLoss loss = random_loss(p.inputs());
      const Forward results = forward(p.inputs(), options);
      expect_right(watch(p.inputs(), results, options, loss, kNothing), p.inputs(), options, loss);
    }
  }
}

TEST(AttentionBackwardLenses, NoQueriesOrNoKeys) {
  const RandomProblem no_queries = stored_problem({1, 2, 1, 0, 30}, 4, 4);
  const RandomProblem no_keys = stored_problem({1, 2, 1, 30, 0}, 4, 4);
  for (const RandomProblem* p : {&no_queries, &no_keys}) {
    const Forward results = forward(p->inputs());
    const Watched found = watch(p->inputs(), results, {}, random_loss(p->inputs()));
    EXPECT_TRUE(all_are(found.relevance, 0.0));
    EXPECT_TRUE(all_are(found.magnitude, 0.0));
  }
}

TEST(AttentionBackwardLenses, Float64) {
  const RandomProblem p({2, 4, 2, 20, 30}, 8, 4);
  const AttentionOptions options{.mask = window(9, 3)};
  const ResultLoss loss = random_loss(p.inputs(), true, 77, DType::kFloat64);
  const Watched found = watch(p.inputs(), forward(p.inputs(), options), options, loss, kNothing);
  const auto exact = gradients_by_reference(p.inputs(), options, loss, DType::kFloat64);
  EXPECT_TRUE(same_bits(found.relevance, exact.relevance));
  EXPECT_TRUE(same_bits(found.magnitude, exact.magnitude));
}

// ---- Threads ------------------------------------------------------------------------------------

TEST(AttentionBackwardLenses, AnyNumberOfThreadsGivesTheSameBits) {
  for (const LensCase& one : lens_cases()) {
    const RandomProblem p = stored_problem(one.shape, 17, 9);
    const ResultLoss loss = random_loss(p.inputs());
    const Forward results = forward(p.inputs(), one.options);
    AttentionOptions options = one.options;
    options.execution.threads = 1;
    const Watched expected = watch(p.inputs(), results, options, loss);
    for (const int threads : {2, 3, 8}) {
      options.execution.threads = threads;
      const Watched found = watch(p.inputs(), results, options, loss);
      EXPECT_TRUE(same_bits(found.relevance, expected.relevance)) << one.name << ", " << threads;
      EXPECT_TRUE(same_bits(found.magnitude, expected.magnitude)) << one.name << ", " << threads;
      EXPECT_TRUE(same_bits(found.gradients, expected.gradients)) << one.name << ", " << threads;
    }
  }
}

// ---- Memory -------------------------------------------------------------------------------------

TEST(AttentionBackwardLenses, WriteNothingBetweenTheirRows) {
  const ProblemShape shape{2, 4, 2, 30, 200};
  const RandomProblem p = stored_problem(shape, 8, 8);
  const ResultLoss loss = random_loss(p.inputs());
  const Forward results = forward(p.inputs());
  const Watched expected = watch(p.inputs(), results, {}, loss);
  Tensor memory(DType::kFloat32, {2, 4, 211});
  fill(memory, kUntouched);
  const BackwardLenses lenses{
      .magnitude = laid_over(memory.view(), 3, {2, 4, 200}, Strides{4 * 211, 211, 1})};
  attention_backward(backward_inputs(p.inputs(), results, loss), {}, {.lenses = &lenses});
  for_each_index(memory.shape(), [&](const Index& at) {
    const bool inside = at[2] >= 3 && at[2] < 203;
    const double wanted =
        inside ? expected.magnitude.value({at[0], at[1], at[2] - 3}) : double{kUntouched};
    ASSERT_EQ(memory.value(at), wanted) << to_string(at);
  });
}

TEST(AttentionBackwardLenses, StayWithinTheCallersWorkspace) {
  const RandomProblem p = stored_problem({1, 4, 2, 60, 300}, 8, 8);
  const ResultLoss loss = random_loss(p.inputs());
  const Forward results = forward(p.inputs());
  const Watched expected = watch(p.inputs(), results, {}, loss, kNothing);
  const BackwardInputs inputs = backward_inputs(p.inputs(), results, loss);
  Tensor relevance(DType::kFloat32, {1, 4, 300});
  const BackwardLenses lenses{.relevance = relevance};
  AttentionOptions options{.execution = {.threads = 1}};
  const std::size_t bytes = attention_backward_workspace(inputs, options, {.lenses = &lenses});
  EXPECT_GT(bytes, attention_backward_workspace(inputs, options, {}));
  std::vector<std::byte> memory(bytes + 1, std::byte{0xFF});
  options.execution.workspace = {memory.data(), bytes};
  attention_backward(inputs, options, {.lenses = &lenses});
  EXPECT_TRUE(same_bits(relevance, expected.relevance));
  EXPECT_EQ(memory.back(), std::byte{0xFF});
}

// ---- NaN ----------------------------------------------------------------------------------------

TEST(AttentionBackwardLenses, NanSpreadsWhereVisible) {
  const ProblemShape shape{1, 2, 1, 53, 150};
  const AttentionOptions options{.mask = window(30, 5)};
  const RandomProblem clean = stored_problem(shape, 5, 19);
  const ResultLoss clean_loss = random_loss(clean.inputs());
  const Watched expected =
      watch(clean.inputs(), forward(clean.inputs(), options), options, clean_loss, kNothing);
  const auto sees = [&](std::int64_t query, std::int64_t key) {
    return options.mask.visible({.query = query, .key = key, .offset = 150 - 53});
  };
  for (const std::string what : {"query", "value", "gradient"}) {
    SCOPED_TRACE(what);
    RandomProblem p = clean;
    ResultLoss loss = random_loss(clean.inputs());
    if (what == "query") set_value(p.query, {0, 1, 17, 3}, kNan);
    if (what == "value") set_value(p.value, {0, 0, 120, 3}, kNan);
    if (what == "gradient") set_value(loss.context, {0, 1, 17, 3}, kNan);
    const Watched found = watch(p.inputs(), forward(p.inputs(), options), options, loss, kNothing);
    for_each_index(found.relevance.shape(), [&](const Index& at) {
      const bool marked = what == "value" ? at[2] == 120 : at[1] == 1 && sees(17, at[2]);
      for (const auto& [lens, right] : {std::pair{&found.relevance, &expected.relevance},
                                        std::pair{&found.magnitude, &expected.magnitude}}) {
        if (marked) {
          ASSERT_TRUE(std::isnan(lens->value(at))) << to_string(at);
        } else {
          ASSERT_EQ(lens->value(at), right->value(at)) << to_string(at);
        }
      }
    });
  }
}

TEST(AttentionBackwardLenses, MaskedKeysAndRowsDoNotChangeABit) {
  const ProblemShape shape{2, 2, 1, 53, 150};
  for (const Dropout& dropout : {Dropout{}, Dropout{.probability = 0.3, .seed = 5}}) {
    const AttentionOptions options{.mask = key_lengths({101, 0}) & window(60, 60),
                                   .dropout = dropout};
    RandomProblem p = stored_problem(shape, 5, 19);
    ResultLoss loss = random_loss(p.inputs());
    const Forward results = forward(p.inputs(), options);
    const Watched expected = watch(p.inputs(), results, options, loss, kNothing);
    for (const double number : {kNan, kInfinity}) {
      for_each_index({2, 1, 150}, [&](const Index& at) {
        if (at[0] == 0 && at[2] < 101) return;
        set_value(p.key, {at[0], 0, at[2], 0}, number);
        set_value(p.value, {at[0], 0, at[2], 1}, number);
      });
      for (std::int64_t q = 0; q < 53; ++q) set_value(loss.context, {1, 1, q, 2}, number);
      const Watched found = watch(p.inputs(), results, options, loss, kNothing);
      EXPECT_TRUE(same_bits(found.relevance, expected.relevance));
      EXPECT_TRUE(same_bits(found.magnitude, expected.magnitude));
      for (std::int64_t j = 101; j < 150; ++j) EXPECT_EQ(found.relevance.value({0, 0, j}), 0.0);
    }
  }
}

}  // namespace
}  // namespace fovea::test
