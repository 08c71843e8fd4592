// SPDX-License-Identifier: Apache-2.0
//
// General attention: its formula, padded keys, gradients.

#include "fovea/nn/general_attention.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/random.h"

#include "support/layer_check.h"
#include "support/message_of.h"
#include "support/random_problem.h"
#include "support/same_layer.h"
#include "support/threads.h"

namespace fovea::nn {
namespace {

using Lengths = std::vector<std::int64_t>;

constexpr std::int64_t kGeneralQueryDim = 3, kGeneralKeyDim = 2;

struct GeneralCase {
  std::string name;
  bool values;
  std::int64_t batch, q_len, kv_len;
  Lengths lengths;
};

const GeneralCase kGeneralCases[] = {
    {"keys are values", false, 2, 3, 4, {}},
    {"values", true, 2, 3, 4, {}},
    {"uneven, one empty", false, 3, 2, 4, {4, 0, 1}},
    {"values, uneven", true, 2, 1, 5, {2, 5}},
    {"one item, one key", false, 1, 1, 1, {}},
    {"no query", true, 2, 0, 3, {}},
    {"no key", false, 2, 2, 0, {}},
    {"no item", false, 0, 2, 3, {}},
};

struct GeneralInputs {
  explicit GeneralInputs(const GeneralCase& c)
      : query(RandomState(2).randn({c.batch, c.q_len, kGeneralQueryDim})),
        keys(RandomState(3).randn({c.batch, c.kv_len, kGeneralKeyDim})),
        values(c.values ? RandomState(4).randn({c.batch, c.kv_len, 5}) : Tensor()) {}

  TensorView shown_values() const { return values.defined() ? TensorView(values) : keys.view(); }

  Tensor query, keys, values;
};

std::vector<TensorView> general_in_order(const GeneralAttention::Gradients& g) {
  std::vector<TensorView> all{g.query, g.keys};
  if (g.values.defined()) all.push_back(g.values);
  return all;
}

TEST(NnGeneralAttention, MatchesItsFormula) {
  for (const GeneralCase& c : kGeneralCases) {
    SCOPED_TRACE(c.name);
    Model model(1, DType::kFloat64);
    GeneralAttention layer(model.scope(), kGeneralQueryDim, kGeneralKeyDim);
    const TensorView weight(model.parameters().find("query_proj.weight")->value);
    const GeneralInputs in(c);
    const TensorView context = layer.forward(in.query, in.keys, in.values, c.lengths);
    const TensorView weights = layer.weights();
    ASSERT_EQ(weights.shape(), Shape({c.batch, c.q_len, c.kv_len}));
    for_each_index({c.batch, c.q_len}, [&](const Index& at) {
      const std::int64_t length =
          c.lengths.empty() ? c.kv_len : c.lengths[static_cast<std::size_t>(at[0])];
      std::vector<double> exps;
      double sum = 0.0;
      for (std::int64_t j = 0; j < length; ++j) {
        double score = 0.0;
        for_each_index(weight.shape(), [&](const Index& of) {
          score += in.keys.value({at[0], j, of[0]}) * weight.value(of) *
                   in.query.value({at[0], at[1], of[1]});
        });
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

TEST(NnGeneralAttention, GradientsMatchFiniteDifferences) {
  for (const GeneralCase& c : kGeneralCases) {
    SCOPED_TRACE(c.name);
    Model model(1, DType::kFloat64);
    GeneralAttention layer(model.scope(), kGeneralQueryDim, kGeneralKeyDim);
    test::draw_parameters(model);
    GeneralInputs in(c);
    std::vector<Tensor*> inputs{&in.query, &in.keys};
    if (c.values) inputs.push_back(&in.values);
    test::expect_gradients(
        {model, inputs,
         [&] { return TensorView(layer.forward(in.query, in.keys, in.values, c.lengths)); },
         [&](const TensorView& grad) { return general_in_order(layer.backward(grad)); }});
  }
}

TEST(NnGeneralAttention, Float32AgreesWithFloat64) {
  for (const std::int64_t key_dim : {1, 16, 90}) {
    const std::int64_t batch = 3, q_len = 9, kv_len = 21, query_dim = 30;
    const Lengths lengths{21, 0, 13};
    Model model(5), exact(5, DType::kFloat64);
    GeneralAttention layer(model.scope(), query_dim, key_dim);
    GeneralAttention exact_layer(exact.scope(), query_dim, key_dim);
    test::copy_parameters(model, exact);
    const auto draw = [](std::uint64_t seed, const Shape& shape) {
      return convert(RandomState(seed).randn(shape), DType::kFloat32);
    };
    const Tensor query = draw(6, {batch, q_len, query_dim}),
                 keys = draw(7, {batch, kv_len, key_dim}), grad = draw(8, {batch, q_len, key_dim});
    const Tensor wide_query = convert(query, DType::kFloat64),
                 wide_keys = convert(keys, DType::kFloat64);
    const double chain = static_cast<double>(query_dim + key_dim + kv_len);
    EXPECT_TRUE(test::within_roundings(layer.forward(query, keys, {}, lengths),
                                       exact_layer.forward(wide_query, wide_keys, {}, lengths),
                                       chain));
    EXPECT_TRUE(test::within_roundings(layer.weights(), exact_layer.weights(), chain));
    const GeneralAttention::Gradients g = layer.backward(grad),
                                      exact_g =
                                          exact_layer.backward(convert(grad, DType::kFloat64));
    EXPECT_TRUE(test::within_roundings(g.query, exact_g.query, chain));
    EXPECT_TRUE(test::within_roundings(g.keys, exact_g.keys, chain + static_cast<double>(q_len)));
    EXPECT_TRUE(test::within_roundings(model.parameters().find("query_proj.weight")->gradient,
                                       exact.parameters().find("query_proj.weight")->gradient,
                                       chain + static_cast<double>(batch * q_len)));
  }
}

TEST(NnGeneralAttention, PaddingIsIgnored) {
  const GeneralCase c{"", true, 2, 2, 3, {1, 2}};
  Model model(1);
  GeneralAttention layer(model.scope(), kGeneralQueryDim, kGeneralKeyDim);
  const GeneralInputs in(c);
  const Tensor query = convert(in.query, DType::kFloat32);
  Tensor keys = convert(in.keys, DType::kFloat32), values = convert(in.values, DType::kFloat32);
  const Tensor context(layer.forward(query, keys, values, c.lengths)), weights(layer.weights());
  const Tensor grad = convert(RandomState(5).randn(context.shape()), DType::kFloat32);
  const Tensor grad_query(layer.backward(grad).query);
  set_value(keys, {0, 1, 0}, std::numeric_limits<double>::quiet_NaN());
  set_value(values, {1, 2, 3}, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(test::same_bits(layer.forward(query, keys, values, c.lengths), context));
  EXPECT_TRUE(test::same_bits(layer.weights(), weights));
  const GeneralAttention::Gradients g = layer.backward(grad);
  EXPECT_TRUE(test::same_bits(g.query, grad_query));
  EXPECT_EQ(g.keys.value({0, 1, 0}), 0.0);
  EXPECT_EQ(g.values.value({1, 2, 3}), 0.0);
}

TEST(NnGeneralAttention, SameBitsForAnyThreadCount) {
  const auto run = [](int threads) {
    const test::Threads limit(threads);
    Model model(3);
    GeneralAttention layer(model.scope(), 40, 70);
    const Tensor query = convert(RandomState(2).randn({30, 9, 40}), DType::kFloat32);
    const Tensor keys = convert(RandomState(3).randn({30, 11, 70}), DType::kFloat32);
    const Tensor grad = convert(RandomState(4).randn({30, 9, 70}), DType::kFloat32);
    std::vector<Tensor> all;
    all.emplace_back(layer.forward(query, keys));
    const GeneralAttention::Gradients g = layer.backward(grad);
    all.emplace_back(g.query);
    all.emplace_back(g.keys);
    for (const Parameter& parameter : model.parameters()) all.push_back(parameter.gradient);
    return all;
  };
  const std::vector<Tensor> one = run(1), two = run(2);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(test::same_bits(one[i], two[i])) << i;
}

TEST(NnGeneralAttention, InvalidArguments) {
  Model model;
  GeneralAttention layer(model.scope("attention"), 2, 3);
  ASSERT_NE(model.parameters().find("attention.query_proj.weight"), nullptr);
  EXPECT_EQ(model.parameters().find("attention.query_proj.weight")->value.shape(), Shape({3, 2}));
  const auto zeros = [](const Shape& shape) { return Tensor(DType::kFloat32, shape); };
  const Tensor query = zeros({2, 5, 2}), keys = zeros({2, 6, 3});
  const auto forward = [&](const TensorView& q, const TensorView& k, const TensorView& v = {},
                           const Lengths& lengths = {}) {
    return test::message_of([&] { layer.forward(q, k, v, lengths); });
  };
  EXPECT_EQ(forward(zeros({2, 5, 3}), keys), "query: expected [..., 2], got [2, 5, 3]");
  EXPECT_EQ(forward(zeros({1, 5, 2}), keys), "query: expected [2, length, 2], got [1, 5, 2]");
  EXPECT_EQ(forward(query, zeros({2, 6, 2})), "keys: expected [..., 3], got [2, 6, 2]");
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

}  // namespace
}  // namespace fovea::nn
