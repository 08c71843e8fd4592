// SPDX-License-Identifier: Apache-2.0
//
// Norms, embeddings, positions, dropout, feed-forward and the loss: results by definition, and
// gradients against finite differences.

#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/nn/cross_entropy.h"
#include "fovea/nn/dropout_layer.h"
#include "fovea/nn/embedding.h"
#include "fovea/nn/feed_forward.h"
#include "fovea/nn/layer_norm.h"
#include "fovea/random.h"

#include "support/layer_check.h"
#include "support/message_of.h"
#include "support/random_problem.h"

namespace fovea::nn {
namespace {

using test::message_of;

/// Checks the gradients of a layer that has one input.
template <class Layer>
void expect_gradients(Model& model, Layer& layer, Tensor& x) {
  test::expect_gradients(
      {model,
       {&x},
       [&] { return TensorView(layer.forward(x)); },
       [&](const TensorView& grad) { return std::vector<TensorView>{layer.backward(grad)}; }});
}

TEST(NnModel, BuildUndoesWhatFailed) {
  Model model(1), other(1);
  const Linear first(model.scope("a"), 2, 3), same(other.scope("a"), 2, 3);
  // Fails after its first matrix, which draws an odd number of normal values.
  EXPECT_EQ(message_of([&] { model.build([&] { return Embedding(model.scope("b"), 3, 3, 3); }); }),
            "padding: expected 0 to 2, got 3");
  EXPECT_NE(
      message_of([&] {
        model.build([&] { return FeedForward(model.scope("b"), 3, 4, Activation::kRelu, 2.0); });
      }),
      "");
  EXPECT_EQ(model.parameters().size(), 2u);
  EXPECT_EQ(model.new_dropout(), 0u);
  model.build([&] { return Embedding(model.scope("b"), 3, 3, 2); });
  const Embedding corrected(other.scope("b"), 3, 3, 2);
  ASSERT_EQ(model.parameters().size(), 3u);
  EXPECT_EQ(test::max_difference(model.parameters().find("b.weight")->value,
                                 other.parameters().find("b.weight")->value),
            0.0);
}

TEST(NnLayerNorm, NormalizesRowsToMean0AndVariance1) {
  Model model(1, DType::kFloat64);
  LayerNorm layer(model.scope(), 37);
  Tensor x = RandomState(1).randn({5, 37});
  for (double& number : x.span<double>()) number = 3.0 + 100.0 * number;
  const MutableTensorView y = layer.forward(x);
  for (std::int64_t r = 0; r < 5; ++r) {
    double mean = 0.0, square = 0.0;
    for (std::int64_t c = 0; c < 37; ++c) {
      mean += y.value({r, c}) / 37;
      square += y.value({r, c}) * y.value({r, c}) / 37;
    }
    EXPECT_NEAR(mean, 0.0, 1e-14);
    EXPECT_NEAR(square, 1.0, 1e-5 / 1000);  // epsilon divided by the variance
  }
}

TEST(NnLayerNorm, GradientsMatchFiniteDifferences) {
  for (const std::int64_t width : {1, 2, 17}) {
    Model model(1, DType::kFloat64);
    LayerNorm layer(model.scope("norm"), width);
    test::draw_parameters(model);
    Tensor x = RandomState(2).randn({2, 3, width});
    expect_gradients(model, layer, x);
  }
}

TEST(NnEmbedding, GathersRowsAndAccumulatesTheirGradients) {
  Model model(1, DType::kFloat64);
  Embedding layer(model.scope(), 5, 3, 2);
  const Tensor& table = model.parameters().find("weight")->value;
  Tensor tokens(DType::kInt64, {2, 2});
  for (const auto& [place, token] : {std::pair(0, 4), {1, 2}, {2, 4}, {3, 0}}) {
    tokens.span<std::int64_t>()[static_cast<std::size_t>(place)] = token;
  }
  const MutableTensorView y = layer.forward(tokens);
  ASSERT_EQ(y.shape(), Shape({2, 2, 3}));
  for_each_index(y.shape(), [&](const Index& at) {
    EXPECT_EQ(y.value(at), table.value({tokens.at<std::int64_t>({at[0], at[1]}), at[2]}));
  });
  for (std::int64_t c = 0; c < 3; ++c) EXPECT_EQ(table.value({2, c}), 0.0);

  const Tensor grad = RandomState(2).randn({2, 2, 3});
  layer.backward(grad);
  const Tensor& found = model.parameters().find("weight")->gradient;
  for (std::int64_t c = 0; c < 3; ++c) {
    EXPECT_EQ(found.value({4, c}), grad.value({0, 0, c}) + grad.value({1, 0, c}));
    EXPECT_EQ(found.value({0, c}), grad.value({1, 1, c}));
    EXPECT_EQ(found.value({2, c}), 0.0) << "padding";
    EXPECT_EQ(found.value({1, c}), 0.0);
  }
}

TEST(NnEmbedding, InvalidArguments) {
  Model model;
  Embedding layer(model.scope("a"), 5, 3);
  Tensor tokens(DType::kInt64, {2});
  tokens.span<std::int64_t>()[1] = 5;
  EXPECT_EQ(message_of([&] { layer.forward(tokens); }), "tokens: expected 0 to 4, got 5");
  tokens.span<std::int64_t>()[1] = -1;
  EXPECT_EQ(message_of([&] { layer.forward(tokens); }), "tokens: expected 0 to 4, got -1");
  EXPECT_EQ(message_of([&] { layer.forward(Tensor(DType::kFloat32, {2})); }),
            "tokens: expected int64, got float32");
  EXPECT_EQ(message_of([&] { Embedding wrong(model.scope("b"), 5, 3, 5); }),
            "padding: expected 0 to 4, got 5");
}

TEST(NnPositions, AreSinesAndCosines) {
  EXPECT_EQ(message_of([] { sinusoidal_positions(2, 4, DType::kInt64); }),
            "dtype: expected a type of floats, got int64");
  const Tensor table = sinusoidal_positions(50, 5, DType::kFloat64);
  for (const std::int64_t place : {0, 1, 49}) {
    const auto p = static_cast<double>(place);
    EXPECT_DOUBLE_EQ(table.value({place, 0}), std::sin(p));
    EXPECT_DOUBLE_EQ(table.value({place, 1}), std::cos(p));
    EXPECT_DOUBLE_EQ(table.value({place, 4}), std::sin(p / std::pow(10000.0, 0.8)));
  }
}

TEST(NnPositions, LearnedPositionGradientsMatchFiniteDifferences) {
  Model model(1, DType::kFloat64);
  Positions layer(model.scope("positions"), PositionKind::kLearned, 6, 3);
  Tensor x = RandomState(2).randn({2, 4, 3});
  Tensor y;
  test::expect_gradients({model,
                          {&x},
                          [&] {
                            y = x;
                            layer.forward(y, 1);
                            return TensorView(y);
                          },
                          [&](const TensorView& grad) {
                            layer.backward(grad);
                            return std::vector<TensorView>{grad};
                          }});
  EXPECT_EQ(message_of([&] {
              layer.backward(Tensor(DType::kFloat64, {2, 6, 3}));
            }),
            "grad_y: expected [2, 4, 3], got [2, 6, 3]");
  EXPECT_EQ(message_of([&] { layer.forward(y, 3); }),
            "x: expected positions within 6, got 4 from 3 on");
}

TEST(NnDropout, KeepsTheExpectedShareIndependently) {
  constexpr std::int64_t kCount = 1'000'003;  // prime: never a multiple of a vector or block
  for (const double p : {0.1, 0.5, 0.9}) {
    Model model(7);
    DropoutLayer layer(model.scope(), p), other(model.scope(), p);
    const auto run = [&](DropoutLayer& of, std::uint32_t step) {
      model.train(step);
      Tensor x(DType::kFloat32, {kCount});
      for (float& number : x.span<float>()) number = 1.0f;
      of.forward(x);
      return x;
    };
    const Tensor first = run(layer, 1);
    std::int64_t kept = 0;
    for (const float number : first.span<float>()) {
      if (number != 0.0f) {
        ++kept;
        EXPECT_FLOAT_EQ(number, static_cast<float>(1.0 / (1.0 - p)));
      }
    }
    const double deviation = std::sqrt(kCount * p * (1 - p));
    EXPECT_NEAR(static_cast<double>(kept), kCount * (1 - p), 4 * deviation);

    // Repeating a step keeps the same elements. Other steps and layers keep statistically
    // independent sets of elements.
    EXPECT_EQ(test::max_difference(run(layer, 1), first), 0.0);
    for (const Tensor& independent : {run(layer, 2), run(other, 1)}) {
      std::int64_t both = 0;
      for (std::size_t i = 0; i < kCount; ++i) {
        both += first.span<float>()[i] != 0.0f && independent.span<float>()[i] != 0.0f;
      }
      const double share = (1 - p) * (1 - p);
      EXPECT_NEAR(static_cast<double>(both), kCount * share,
                  4 * std::sqrt(kCount * share * (1 - share)));
    }
    model.evaluate();
    Tensor x = convert(RandomState(1).randn({8}), DType::kFloat32);
    Tensor before = x;
    layer.forward(x);
    EXPECT_EQ(test::max_difference(x, before), 0.0);
  }
}

TEST(NnDropout, InvalidArguments) {
  Model model(1);
  DropoutLayer layer(model.scope(), 0.5);
  Tensor exact(DType::kFloat64, {4}), x(DType::kFloat32, {4}), longer(DType::kFloat32, {5});
  EXPECT_EQ(message_of([&] { layer.forward(exact); }),
            "x: expected float32, as the parameters are, got float64");
  model.train(1);
  layer.forward(x);
  EXPECT_EQ(message_of([&] { layer.backward(longer); }), "grad_y: expected [4], got [5]");
}

TEST(NnDropout, GradientsMatchFiniteDifferences) {
  Model model(1, DType::kFloat64);
  DropoutLayer layer(model.scope(), 0.4);
  model.train(3);
  Tensor x = RandomState(1).randn({3, 50}), residual = RandomState(2).randn({3, 50});
  Tensor y;
  test::expect_gradients({model,
                          {&x, &residual},
                          [&] {
                            y = x;
                            layer.forward_add(y, residual);
                            return TensorView(y);
                          },
                          [&](const TensorView& grad) {
                            return std::vector<TensorView>{layer.backward(grad), grad};
                          }});
}

TEST(NnFeedForward, GradientsMatchFiniteDifferences) {
  for (const Activation activation : {Activation::kRelu, Activation::kGelu}) {
    for (const double dropout : {0.0, 0.3}) {
      Model model(1, DType::kFloat64);
      FeedForward layer(model.scope(), 3, 7, activation, dropout);
      model.train(1);
      Tensor x = RandomState(2).randn({2, 3, 3});
      expect_gradients(model, layer, x);
    }
  }
}

Tensor classes(const std::vector<std::int64_t>& numbers) {
  return Tensor::from({static_cast<std::int64_t>(numbers.size())}, numbers);
}

TEST(NnCrossEntropy, IsTheNegativeLogProbability) {
  const Tensor logits = Tensor::matrix({{1, 2, 3}, {0, 0, 0}, {5, 1, 1}});
  CrossEntropy loss({.ignored = -1});
  const double first = -3.0 + std::log(std::exp(1.0) + std::exp(2.0) + std::exp(3.0));
  EXPECT_NEAR(loss.forward(logits, classes({2, -1, -1})), first, 1e-15);
  EXPECT_EQ(loss.counted(), 1);
  EXPECT_EQ(loss.correct(), 1);
  EXPECT_NEAR(loss.forward(logits, classes({2, 1, -1})), (first + std::log(3.0)) / 2, 1e-15);
  EXPECT_EQ(loss.correct(), 1);
  EXPECT_EQ(loss.forward(logits, classes({-1, -1, -1})), 0.0);
  EXPECT_EQ(test::max_difference(loss.backward(), Tensor(DType::kFloat64, {3, 3})), 0.0);
  // Logits whose exponentials would overflow.
  EXPECT_NEAR(loss.forward(Tensor::matrix({{1000, 990}}), classes({1})),
              10.0 + std::log1p(std::exp(-10.0)), 1000 * 0x1p-52);
}

TEST(NnCrossEntropy, GradientsMatchFiniteDifferences) {
  for (const double smoothing : {0.0, 0.1}) {
    Model none(1, DType::kFloat64);
    CrossEntropy loss({.ignored = 0, .label_smoothing = smoothing});
    Tensor logits = RandomState(3).randn({4, 5});
    const Tensor targets = classes({3, 0, 1, 4});
    Tensor value(DType::kFloat64, {1});
    test::expect_gradients({none,
                            {&logits},
                            [&] {
                              value.span<double>()[0] = loss.forward(logits, targets);
                              return TensorView(value);
                            },
                            [&](const TensorView& grad) {
                              return std::vector<TensorView>{loss.backward(grad.value({0}))};
                            }});
  }
}

TEST(NnCrossEntropy, LargeLogitsKeepTheirDigits) {
  for (const double offset : {0.0, 1e4, -1e6}) {
    for (const double smoothing : {0.0, 0.1}) {
      Tensor logits = convert(RandomState(3).randn({8, 5}), DType::kFloat32);
      for (float& logit : logits.span<float>()) logit += static_cast<float>(offset);
      const Tensor targets = classes({3, 0, 1, 4, 2, 2, 0, 1}),
                   exact = convert(logits, DType::kFloat64);
      CrossEntropy loss({.label_smoothing = smoothing}), expected({.label_smoothing = smoothing});
      EXPECT_NEAR(loss.forward(logits, targets), expected.forward(exact, targets), 4 * 0x1p-24);
      EXPECT_LE(test::max_difference(loss.backward(), expected.backward()), 0x1p-24);
    }
  }
}

TEST(NnCrossEntropy, InvalidArguments) {
  CrossEntropy loss;
  const Tensor logits(DType::kFloat32, {2, 3});
  EXPECT_EQ(message_of([&] {
              loss.forward(logits, classes({0, 3}));
            }),
            "targets: expected 0 to 2, got 3");
  EXPECT_EQ(message_of([&] { loss.forward(logits, classes({0})); }),
            "targets: expected int64 [2], got int64 [1]");
  EXPECT_EQ(message_of([] { CrossEntropy wrong({.label_smoothing = 1.0}); }),
            "label_smoothing: expected a share in [0, 1), got 1");
}

}  // namespace
}  // namespace fovea::nn
