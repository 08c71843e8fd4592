// SPDX-License-Identifier: Apache-2.0
//
// Linear layers, and the common parts of all layers: parameters, names, seeds, errors.

#include "fovea/nn/linear.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/error.h"
#include "fovea/random.h"

#include "support/layer_check.h"
#include "support/message_of.h"
#include "support/random_problem.h"

namespace fovea::nn {
namespace {

using testing::HasSubstr;

TEST(NnLinear, MultipliesAndAdds) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    Model model(1, dtype);
    Linear layer(model.scope("map"), 3, 2);
    const auto set = [&](const char* name, const std::vector<double>& numbers) {
      Parameter* const parameter = model.parameters().find(name);
      ASSERT_NE(parameter, nullptr) << name;
      std::size_t next = 0;
      for_each_index(parameter->value.shape(),
                     [&](const Index& at) { set_value(parameter->value, at, numbers[next++]); });
    };
    set("map.weight", {1, 2, 3, 4, 5, 6});
    set("map.bias", {10, 20});
    const Tensor x = convert(Tensor::matrix({{1, 0, 0}, {1, 1, 1}}), dtype);
    const MutableTensorView y = layer.forward(x);
    EXPECT_EQ(y.shape(), Shape({2, 2}));
    EXPECT_EQ(test::max_difference(y, Tensor::matrix({{11, 24}, {16, 35}})), 0.0);
  }
}

TEST(NnLinear, GradientsMatchFiniteDifferences) {
  for (const bool bias : {true, false}) {
    Model model(2, DType::kFloat64);
    Linear layer(model.scope(), 4, 3, bias);
    Tensor x = RandomState(3).randn({2, 5, 4});
    test::expect_gradients(
        {model,
         {&x},
         [&] { return TensorView(layer.forward(x)); },
         [&](const TensorView& g) { return std::vector<TensorView>{layer.backward(g)}; }});
  }
}

TEST(NnLinear, Float32AgreesWithFloat64) {
  // Sizes for each special case of the matrix products: 1, small, large, odd.
  for (const std::int64_t in : {1, 7, 64, 300}) {
    for (const std::int64_t rows : {0, 1, 33, 200}) {
      const std::int64_t out = 65;
      Model exact(5, DType::kFloat64), model(5);
      Linear exact_layer(exact.scope(), in, out), layer(model.scope(), in, out);
      for (const Parameter& parameter : model.parameters()) {
        exact.parameters().find(parameter.name)->value = convert(parameter.value, DType::kFloat64);
      }
      const Tensor x = convert(RandomState(6).randn({rows, in}), DType::kFloat32);
      const Tensor grad = convert(RandomState(7).randn({rows, out}), DType::kFloat32);
      const Tensor exact_x = convert(x, DType::kFloat64),
                   exact_grad = convert(grad, DType::kFloat64);
      // Sums of n products of order 1; each addition rounds to 2^-24 of the partial sum.
      const auto allowed = [](std::int64_t n) {
        return 4.0 * static_cast<double>(n + 1) * 0x1p-24 * std::sqrt(static_cast<double>(n + 1));
      };
      EXPECT_LE(test::max_difference(layer.forward(x), exact_layer.forward(exact_x)), allowed(in));
      EXPECT_LE(test::max_difference(layer.backward(grad), exact_layer.backward(exact_grad)),
                allowed(out));
      for (const Parameter& parameter : model.parameters()) {
        EXPECT_LE(test::max_difference(parameter.gradient,
                                       exact.parameters().find(parameter.name)->gradient),
                  allowed(rows))
            << parameter.name;
      }
    }
  }
}

TEST(NnLinear, ParameterGradientsAccumulate) {
  Model model(1, DType::kFloat64);
  Linear layer(model.scope(), 2, 2);
  const Tensor x = RandomState(1).randn({3, 2}), grad = RandomState(2).randn({3, 2});
  layer.forward(x);
  layer.backward(grad);
  const Tensor once = model.parameters().find("weight")->gradient;
  layer.backward(grad);
  for_each_index(once.shape(), [&](const Index& at) {
    EXPECT_DOUBLE_EQ(model.parameters().find("weight")->gradient.value(at), 2 * once.value(at));
  });
  model.parameters().zero_gradients();
  for (const double g : model.parameters().find("weight")->gradient.span<double>()) EXPECT_EQ(g, 0);
}

TEST(NnModel, SameSeedGivesTheSameParameters) {
  const auto weight = [](std::uint64_t seed) {
    Model model(seed);
    Linear layer(model.scope(), 8, 8);
    return model.parameters().find("weight")->value;
  };
  EXPECT_EQ(test::max_difference(weight(1), weight(1)), 0.0);
  EXPECT_GT(test::max_difference(weight(1), weight(2)), 0.0);
  double largest = 0.0;
  const Tensor drawn = weight(1);
  for (const float w : drawn.span<float>()) largest = std::max(largest, std::abs(double{w}));
  EXPECT_LE(largest, 1 / std::sqrt(8.0));
  EXPECT_GT(largest, 0.9 / std::sqrt(8.0));
}

TEST(NnModel, NamesFollowTheScopes) {
  Model model;
  Linear first(model.scope("encoder").in("layers", 0).in("linear1"), 2, 3);
  Linear second(model.scope("encoder").in("layers", 1).in("linear1"), 2, 3, false);
  std::vector<std::string> names;
  for (const Parameter& parameter : model.parameters()) names.push_back(parameter.name);
  EXPECT_THAT(names, testing::ElementsAre("encoder.layers.0.linear1.weight",
                                          "encoder.layers.0.linear1.bias",
                                          "encoder.layers.1.linear1.weight"));
  EXPECT_EQ(model.parameters().count(), 6 + 3 + 6);
  EXPECT_THAT(test::message_of([&] {
                Linear again(model.scope("encoder").in("layers", 0).in("linear1"), 2, 3);
              }),
              HasSubstr("\"encoder.layers.0.linear1.weight\" already"));
  EXPECT_EQ(test::message_of([&] { Linear(model.scope("none"), 0, 2); }),
            "in: expected 1 or more features, got 0");
  EXPECT_EQ(test::message_of([&] { Linear(model.scope("none"), 2, -1); }),
            "out: expected 1 or more features, got -1");
  EXPECT_THAT(test::message_of([] { Model half(0, DType::kFloat16); }),
              HasSubstr("expected float32 or float64, got float16"));
}

TEST(NnLinear, InvalidArguments) {
  Model model;
  Linear layer(model.scope(), 4, 3);
  const auto forward = [&](const TensorView& x) {
    return test::message_of([&] { layer.forward(x); });
  };
  EXPECT_EQ(forward(Tensor(DType::kFloat32, {2, 5})), "x: expected [..., 4], got [2, 5]");
  EXPECT_EQ(forward(Tensor(DType::kFloat32, {})), "x: expected [..., 4], got []");
  EXPECT_EQ(forward(Tensor(DType::kFloat64, {2, 4})),
            "x: expected float32, as the parameters are, got float64");
  EXPECT_EQ(forward({}), "x: expected a tensor, got none");
  const Tensor square(DType::kFloat32, {4, 4});
  EXPECT_EQ(forward(square.view().transposed(0, 1)),
            "x: expected contiguous rows, got strides [1, 4]");
  const Tensor x(DType::kFloat32, {2, 4});
  layer.forward(x);
  EXPECT_EQ(test::message_of([&] {
              layer.backward(Tensor(DType::kFloat32, {3, 3}));
            }),
            "grad_y: expected [2, 3], got [3, 3]");
}

}  // namespace
}  // namespace fovea::nn
