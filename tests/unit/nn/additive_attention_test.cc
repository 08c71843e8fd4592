// SPDX-License-Identifier: Apache-2.0
//
// Additive attention: its formula, padded keys, gradients, and stepwise calls, which match one
// forward pass.

#include "fovea/nn/additive_attention.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/random.h"

#include "support/allocations.h"
#include "support/layer_check.h"
#include "support/message_of.h"
#include "support/random_problem.h"
#include "support/same_layer.h"
#include "support/threads.h"

namespace fovea::nn {
namespace {

using Lengths = std::vector<std::int64_t>;

constexpr std::int64_t kAdditiveQueryDim = 3, kAdditiveKeyDim = 2, kAdditiveDim = 4;

struct AdditiveCase {
  std::string name;
  bool bias, values;
  std::int64_t batch, q_len, kv_len;
  Lengths lengths;
};

const AdditiveCase kAdditiveCases[] = {
    {"keys are values", false, false, 2, 3, 4, {}},
    {"values, a bias", true, true, 2, 3, 4, {}},
    {"uneven, one empty", true, false, 3, 2, 4, {4, 0, 1}},
    {"values, uneven", false, true, 2, 1, 5, {2, 5}},
    {"one item, one key", false, false, 1, 1, 1, {}},
    {"no query", false, true, 2, 0, 3, {}},
    {"no key", true, false, 2, 2, 0, {}},
    {"no item", true, false, 0, 2, 3, {}},
};

/// The inputs of one case.
struct AdditiveInputs {
  explicit AdditiveInputs(const AdditiveCase& c)
      : query(RandomState(2).randn({c.batch, c.q_len, kAdditiveQueryDim})),
        keys(RandomState(3).randn({c.batch, c.kv_len, kAdditiveKeyDim})),
        values(c.values ? RandomState(4).randn({c.batch, c.kv_len, 5}) : Tensor()) {}

  TensorView shown_values() const { return values.defined() ? TensorView(values) : keys.view(); }

  Tensor query, keys, values;
};

/// Returns the layer's gradients in the order of the inputs.
std::vector<TensorView> additive_in_order(const AdditiveAttention::Gradients& g) {
  std::vector<TensorView> all{g.query, g.keys};
  if (g.values.defined()) all.push_back(g.values);
  return all;
}

TEST(NnAdditiveAttention, MatchesItsFormula) {
  for (const AdditiveCase& c : kAdditiveCases) {
    SCOPED_TRACE(c.name);
    Model model(1, DType::kFloat64);
    AdditiveAttention layer(model.scope(), kAdditiveQueryDim, kAdditiveKeyDim, kAdditiveDim,
                            c.bias);
    test::draw_parameters(model);
    const AdditiveInputs in(c);
    const TensorView context = layer.forward(in.query, in.keys, in.values, c.lengths);
    const TensorView weights = layer.weights();
    ASSERT_EQ(weights.shape(), Shape({c.batch, c.q_len, c.kv_len}));
    const auto parameter = [&](const char* name) {
      return model.parameters().find(name)->value.view();
    };
    const auto projected = [&](const TensorView& of, std::int64_t item, std::int64_t number,
                               const char* name, std::int64_t i) {
      double sum = 0.0;
      for (std::int64_t d = 0; d < of.extent(2); ++d) {
        sum += parameter(name).value({i, d}) * of.value({item, number, d});
      }
      return sum;
    };
    for_each_index({c.batch, c.q_len}, [&](const Index& at) {
      const std::int64_t length =
          c.lengths.empty() ? c.kv_len : c.lengths[static_cast<std::size_t>(at[0])];
      std::vector<double> exps;
      double sum = 0.0;
      for (std::int64_t j = 0; j < length; ++j) {
        double score = 0.0;
        for (std::int64_t i = 0; i < kAdditiveDim; ++i) {
          const double both = projected(in.query, at[0], at[1], "query_proj.weight", i) +
                              projected(in.keys, at[0], j, "key_proj.weight", i);
          score += parameter("v").value({i}) *
                   std::tanh(both + (c.bias ? parameter("b").value({i}) : 0.0));
        }
        exps.push_back(std::exp(score));
        sum += exps.back();
      }
      for (std::int64_t j = 0; j < c.kv_len; ++j) {
        const double expected = j < length ? exps[static_cast<std::size_t>(j)] / sum : 0.0;
        EXPECT_NEAR(weights.value({at[0], at[1], j}), expected, 1e-14);
      }
      for (std::int64_t d = 0; d < context.extent(2); ++d) {
        double expected = 0.0;
        for (std::int64_t j = 0; j < length; ++j) {
          expected +=
              exps[static_cast<std::size_t>(j)] / sum * in.shown_values().value({at[0], j, d});
        }
        EXPECT_NEAR(context.value({at[0], at[1], d}), expected, 1e-14);
      }
    });
  }
}

TEST(NnAdditiveAttention, GradientsMatchFiniteDifferences) {
  for (const AdditiveCase& c : kAdditiveCases) {
    SCOPED_TRACE(c.name);
    Model model(1, DType::kFloat64);
    AdditiveAttention layer(model.scope(), kAdditiveQueryDim, kAdditiveKeyDim, kAdditiveDim,
                            c.bias);
    test::draw_parameters(model);
    AdditiveInputs in(c);
    std::vector<Tensor*> inputs{&in.query, &in.keys};
    if (c.values) inputs.push_back(&in.values);
    test::expect_gradients(
        {model, inputs,
         [&] { return TensorView(layer.forward(in.query, in.keys, in.values, c.lengths)); },
         [&](const TensorView& grad) { return additive_in_order(layer.backward(grad)); }});
  }
}

TEST(NnAdditiveAttention, StepwiseCallsMatchForward) {
  for (const AdditiveCase& c : kAdditiveCases) {
    SCOPED_TRACE(c.name);
    const AdditiveInputs in(c);
    Model model(1, DType::kFloat64), other(1, DType::kFloat64);
    AdditiveAttention whole(model.scope(), kAdditiveQueryDim, kAdditiveKeyDim, kAdditiveDim,
                            c.bias);
    AdditiveAttention layer(other.scope(), kAdditiveQueryDim, kAdditiveKeyDim, kAdditiveDim,
                            c.bias);
    const Tensor context(whole.forward(in.query, in.keys, in.values, c.lengths));
    const Tensor grad = RandomState(5).randn(context.shape());
    const AdditiveAttention::Gradients expected = whole.backward(grad);
    if (c.batch == 0) continue;  // no steps

    // Each query is written just before its step.
    Tensor query(DType::kFloat64, in.query.shape());
    layer.prepare(in.keys, in.values, c.lengths);
    layer.start(query);
    for (std::int64_t step = 0; step < c.q_len; ++step) {
      for_each_index({c.batch, kAdditiveQueryDim}, [&](const Index& at) {
        set_value(query, {at[0], step, at[1]}, in.query.value({at[0], step, at[1]}));
      });
      const TensorView now = layer.attend(step);
      for_each_index(now.shape(), [&](const Index& at) {
        EXPECT_EQ(now.value(at), context.value({at[0], step, at[1]}));
      });
    }
    EXPECT_TRUE(test::same_bits(layer.weights(), whole.weights()));
    EXPECT_EQ(test::max_difference(Tensor(layer.contexts()).reshaped(context.shape()), context), 0);

    layer.start_backward();
    for (std::int64_t step = c.q_len - 1; step >= 0; --step) {
      const std::int64_t width = context.extent(2);
      Tensor grad_query(DType::kFloat64, {c.batch, kAdditiveQueryDim});
      set_value(grad_query, {0, 0}, 1.0);  // the gradient is accumulated
      const TensorView rows(&grad.at<double>({0, step, 0}), DType::kFloat64, {c.batch, width},
                            {c.q_len * width, 1});
      layer.attend_backward(step, rows, grad_query);
      for_each_index(grad_query.shape(), [&](const Index& at) {
        EXPECT_NEAR(grad_query.value(at) - (at[0] + at[1] == 0 ? 1.0 : 0.0),
                    expected.query.value({at[0], step, at[1]}), 1e-14);
      });
    }
    const AdditiveAttention::Gradients found = layer.end_backward();
    EXPECT_FALSE(found.query.defined());
    EXPECT_EQ(found.values.defined(), c.values);
    EXPECT_LE(test::max_difference(found.keys, expected.keys), 1e-14);
    if (c.values) {
      EXPECT_LE(test::max_difference(found.values, expected.values), 1e-14);
    }
    for (const Parameter& parameter : model.parameters()) {
      EXPECT_LE(test::max_difference(other.parameters().find(parameter.name)->gradient,
                                     parameter.gradient),
                1e-14)
          << parameter.name;
    }
  }
}

TEST(NnAdditiveAttention, PaddingIsIgnored) {
  const AdditiveCase c{"", true, true, 2, 2, 3, {1, 2}};
  Model model(1, DType::kFloat64);
  AdditiveAttention layer(model.scope(), kAdditiveQueryDim, kAdditiveKeyDim, kAdditiveDim, true);
  AdditiveInputs in(c);
  const Tensor context(layer.forward(in.query, in.keys, in.values, c.lengths));
  const Tensor grad = RandomState(5).randn(context.shape());
  const Tensor grad_keys(layer.backward(grad).keys);
  set_value(in.keys, {0, 1, 0}, 1e6);
  set_value(in.values, {1, 2, 3}, -1e6);
  EXPECT_TRUE(test::same_bits(layer.forward(in.query, in.keys, in.values, c.lengths), context));
  const AdditiveAttention::Gradients g = layer.backward(grad);
  EXPECT_TRUE(test::same_bits(g.keys, grad_keys));
  EXPECT_EQ(g.keys.value({0, 1, 0}), 0.0);
  EXPECT_EQ(g.values.value({1, 2, 3}), 0.0);
}

TEST(NnAdditiveAttention, LargeScoresDoNotOverflow) {
  Model model(1);
  AdditiveAttention layer(model.scope(), 1, 1, 1);
  set_value(model.parameters().find("v")->value, {0}, 1e30);
  set_value(model.parameters().find("query_proj.weight")->value, {0, 0}, 1.0);
  set_value(model.parameters().find("key_proj.weight")->value, {0, 0}, 1.0);
  const Tensor query = convert(Tensor::from({1, 1, 1}, std::vector<double>{0.0}), DType::kFloat32);
  const Tensor keys =
      convert(Tensor::from({1, 3, 1}, std::vector<double>{-40, 30, 0.5}), DType::kFloat32);
  layer.forward(query, keys);
  EXPECT_NEAR(layer.weights().value({0, 0, 0}), 0.0, 1e-37);
  EXPECT_EQ(layer.weights().value({0, 0, 1}), 1.0);
  EXPECT_NEAR(layer.weights().value({0, 0, 2}), 0.0, 1e-37);
}

TEST(NnAdditiveAttention, Float32AgreesWithFloat64) {
  for (const std::int64_t dim : {1, 15, 16, 100}) {
    const std::int64_t batch = 3, q_len = 9, kv_len = 21, query_dim = 30, key_dim = 17;
    const Lengths lengths{21, 1, 13};
    Model model(5), exact(5, DType::kFloat64);
    AdditiveAttention layer(model.scope(), query_dim, key_dim, dim, true);
    AdditiveAttention exact_layer(exact.scope(), query_dim, key_dim, dim, true);
    test::copy_parameters(model, exact);
    const auto draw = [](std::uint64_t seed, const Shape& shape) {
      return convert(RandomState(seed).randn(shape), DType::kFloat32);
    };
    const Tensor query = draw(6, {batch, q_len, query_dim}),
                 keys = draw(7, {batch, kv_len, key_dim}), grad = draw(8, {batch, q_len, key_dim});
    const Tensor wide_query = convert(query, DType::kFloat64),
                 wide_keys = convert(keys, DType::kFloat64);
    const double chain = static_cast<double>(query_dim + dim + kv_len);
    EXPECT_TRUE(test::within_roundings(layer.forward(query, keys, {}, lengths),
                                       exact_layer.forward(wide_query, wide_keys, {}, lengths),
                                       chain));
    EXPECT_TRUE(test::within_roundings(layer.weights(), exact_layer.weights(), chain));
    const AdditiveAttention::Gradients g = layer.backward(grad),
                                       exact_g =
                                           exact_layer.backward(convert(grad, DType::kFloat64));
    EXPECT_TRUE(test::within_roundings(g.query, exact_g.query, chain));
    EXPECT_TRUE(test::within_roundings(g.keys, exact_g.keys, chain + static_cast<double>(q_len)));
    for (const Parameter& parameter : model.parameters()) {
      EXPECT_TRUE(test::within_roundings(parameter.gradient,
                                         exact.parameters().find(parameter.name)->gradient,
                                         chain + static_cast<double>(batch * q_len)))
          << parameter.name;
    }
  }
}

TEST(NnAdditiveAttention, SameBitsForAnyThreadCount) {
  const auto run = [](int threads) {
    const test::Threads limit(threads);
    Model model(3);
    AdditiveAttention layer(model.scope(), 40, 70, 50);
    const Tensor query = convert(RandomState(2).randn({30, 9, 40}), DType::kFloat32);
    const Tensor keys = convert(RandomState(3).randn({30, 11, 70}), DType::kFloat32);
    const Tensor grad = convert(RandomState(4).randn({30, 9, 70}), DType::kFloat32);
    std::vector<Tensor> all;
    all.emplace_back(layer.forward(query, keys));
    const AdditiveAttention::Gradients g = layer.backward(grad);
    all.emplace_back(g.query);
    all.emplace_back(g.keys);
    for (const Parameter& parameter : model.parameters()) all.push_back(parameter.gradient);
    return all;
  };
  const std::vector<Tensor> one = run(1), two = run(2);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(test::same_bits(one[i], two[i])) << i;
}

TEST(NnAdditiveAttention, AllocatesOnce) {
  if (!test::counts_allocations()) GTEST_SKIP() << "allocations are not counted here";
  const test::Threads limit(1);
  Model model(3, DType::kFloat64);  // float32 products use oneDNN, which allocates
  AdditiveAttention layer(model.scope(), 4, 5, 6, true);
  const Tensor query = RandomState(2).randn({3, 6, 4}), keys = RandomState(3).randn({3, 7, 5});
  const Tensor grad = RandomState(4).randn({3, 6, 5});
  const Lengths lengths{3, 7, 1};
  const auto step = [&] {
    layer.forward(query, keys, {}, lengths);
    layer.backward(grad);
  };
  step();
  const std::int64_t before = test::allocations();
  step();
  EXPECT_EQ(test::allocations(), before);
}

TEST(NnAdditiveAttention, NamesItsParameters) {
  Model model;
  AdditiveAttention layer(model.scope("attention"), 2, 3, 4, true);
  std::vector<std::string> names;
  for (const Parameter& parameter : model.parameters()) {
    names.push_back(parameter.name + " " + to_string(parameter.value.shape()));
  }
  EXPECT_THAT(names, testing::ElementsAre("attention.query_proj.weight [4, 2]",
                                          "attention.key_proj.weight [4, 3]", "attention.v [4]",
                                          "attention.b [4]"));
}

TEST(NnAdditiveAttention, InvalidArguments) {
  Model model;
  AdditiveAttention layer(model.scope(), 2, 3, 4);
  const auto zeros = [](const Shape& shape) { return Tensor(DType::kFloat32, shape); };
  const Tensor query = zeros({2, 5, 2}), keys = zeros({2, 6, 3});
  const auto forward = [&](const TensorView& q, const TensorView& k, const TensorView& v = {},
                           const Lengths& lengths = {}) {
    return test::message_of([&] { layer.forward(q, k, v, lengths); });
  };
  EXPECT_EQ(forward(zeros({2, 5, 3}), keys), "query: expected [..., 2], got [2, 5, 3]");
  EXPECT_EQ(forward(zeros({1, 5, 2}), keys), "query: expected [2, length, 2], got [1, 5, 2]");
  EXPECT_EQ(forward(query, zeros({2, 6, 2})), "keys: expected [..., 3], got [2, 6, 2]");
  EXPECT_EQ(forward(query, zeros({6, 3})), "keys: expected [batch, length, 3], got [6, 3]");
  EXPECT_EQ(forward(query, keys, zeros({2, 5, 3})), "values: expected [2, 6, 3], got [2, 5, 3]");
  EXPECT_EQ(forward(query, keys, {}, {6}),
            "lengths: expected none or one for each of 2 items, got 1");
  EXPECT_EQ(forward(query, keys, {}, {6, 7}), "lengths: expected lengths from 0 to 6, got 7");
  layer.forward(query, keys);
  EXPECT_EQ(test::message_of([&] {
              layer.backward(zeros({2, 5, 4}));
            }),
            "grad_context: expected [2, 5, 3], got [2, 5, 4]");
}

TEST(NnAdditiveAttention, InvalidSteps) {
  Model model;
  AdditiveAttention layer(model.scope(), 2, 3, 4);
  const auto zeros = [](const Shape& shape) { return Tensor(DType::kFloat32, shape); };
  const Tensor query = zeros({2, 5, 2}), keys = zeros({2, 6, 3}), grad = zeros({2, 3});
  Tensor grad_query = zeros({2, 2}), narrow = zeros({2, 1});
  const auto attend = [&](std::int64_t step) {
    return test::message_of([&] { layer.attend(step); });
  };
  const auto back = [&](std::int64_t step, const TensorView& of_context, Tensor& of_query) {
    return test::message_of([&] { layer.attend_backward(step, of_context, of_query); });
  };
  EXPECT_EQ(test::message_of([&] { layer.start(query); }),
            "keys: expected prepare() before start()");
  EXPECT_EQ(attend(0), "step: expected one of the 0 of start(), got 0");
  layer.prepare(keys);
  EXPECT_EQ(attend(0), "step: expected one of the 0 of start(), got 0");
  layer.start(query);
  EXPECT_EQ(attend(4), "no error");
  EXPECT_EQ(attend(5), "step: expected one of the 5 of start(), got 5");
  EXPECT_EQ(attend(-1), "step: expected one of the 5 of start(), got -1");
  EXPECT_EQ(back(4, grad, grad_query),
            "step: expected start_backward() before the gradient of a step");
  layer.start_backward();
  EXPECT_EQ(back(5, grad, grad_query), "step: expected one of the 5 of start(), got 5");
  EXPECT_EQ(back(4, narrow, grad_query),
            "grad_context: expected float32 [2, 3] with contiguous rows, got float32 [2, 1]");
  EXPECT_EQ(back(4, grad, narrow),
            "grad_query: expected float32 [2, 2] with contiguous rows, got float32 [2, 1]");
  EXPECT_EQ(back(4, grad, grad_query), "no error");
}

}  // namespace
}  // namespace fovea::nn
