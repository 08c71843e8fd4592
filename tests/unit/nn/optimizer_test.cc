// SPDX-License-Identifier: Apache-2.0
//
// Adam, gradient clipping and learning rate schedules, compared with their formulas.

#include "fovea/nn/optimizer.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include "fovea/nn/linear.h"
#include "fovea/random.h"

#include "support/message_of.h"

namespace fovea::nn {
namespace {

using test::message_of;

TEST(NnAdam, FollowsThePaper) {
  for (const double decay : {0.0, 0.1}) {
    Parameters parameters(DType::kFloat64);
    Parameter& parameter = parameters.add("p", {3});
    const AdamOptions options{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = decay};
    Adam adam(parameters, options);
    RandomState random(1);
    double value[3], mean[3] = {}, square[3] = {};
    for (std::size_t i = 0; i < 3; ++i)
      value[i] = parameter.value.span<double>()[i] = random.randn();
    for (int step = 1; step <= 5; ++step) {
      const double rate = 0.01 * step;
      for (std::size_t i = 0; i < 3; ++i) {
        const double g = parameter.gradient.span<double>()[i] = random.randn();
        mean[i] = 0.8 * mean[i] + 0.2 * g;
        square[i] = 0.95 * square[i] + 0.05 * g * g;
        const double mean_now = mean[i] / (1 - std::pow(0.8, step));
        const double square_now = square[i] / (1 - std::pow(0.95, step));
        value[i] -= rate * decay * value[i];
        value[i] -= rate * mean_now / (std::sqrt(square_now) + 1e-6);
      }
      adam.step(rate);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_NEAR(parameter.value.span<double>()[i], value[i], 1e-14);
      }
    }
    EXPECT_EQ(adam.steps(), 5);
  }
}

TEST(NnAdam, InvalidArguments) {
  Parameters parameters;
  EXPECT_EQ(message_of([&] { Adam adam(parameters, {.beta1 = 1.0}); }),
            "beta1: expected a number in [0, 1), got 1");
  EXPECT_EQ(message_of([&] { Adam adam(parameters, {.weight_decay = -1.0}); }),
            "weight_decay: expected a number from 0 on, got -1");
  Adam adam(parameters);
  EXPECT_EQ(message_of([&] { adam.step(std::nan("")); }),
            "learning_rate: expected a number from 0 on, got nan");
}

TEST(NnGradients, AreClippedToTheNorm) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    Parameters parameters(dtype);
    for (const char* const name : {"a", "b"}) {
      Parameter& parameter = parameters.add(name, {20001});
      for_each_index(parameter.gradient.shape(),
                     [&](const Index& at) { set_value(parameter.gradient, at, 2.0); });
    }
    const double norm = 2.0 * std::sqrt(40002.0);
    EXPECT_DOUBLE_EQ(clip_gradients(parameters, 1e6), norm);
    EXPECT_DOUBLE_EQ(gradient_norm(parameters), norm);
    EXPECT_DOUBLE_EQ(clip_gradients(parameters, 1.0), norm);
    EXPECT_NEAR(gradient_norm(parameters), 1.0, 1e-6);
    set_value(parameters.find("b")->gradient, {7}, std::numeric_limits<double>::infinity());
    EXPECT_EQ(clip_gradients(parameters, 1.0), std::numeric_limits<double>::infinity());
    EXPECT_GT(parameters.find("a")->gradient.value({0}), 0.0);
    EXPECT_EQ(message_of([&] { clip_gradients(parameters, 0.0); }),
              "largest: expected a norm above 0, got 0");
  }
}

TEST(NnSchedule, WarmsUpAndDecays) {
  const Schedule root{.peak = 2.0, .kind = Schedule::Kind::kInverseRoot, .warmup = 4};
  EXPECT_DOUBLE_EQ(root.rate(0), 0.5);
  EXPECT_DOUBLE_EQ(root.rate(3), 2.0);
  EXPECT_DOUBLE_EQ(root.rate(15), 1.0);
  const Schedule cosine{.peak = 2.0, .kind = Schedule::Kind::kCosine, .warmup = 10, .total = 110};
  EXPECT_DOUBLE_EQ(cosine.rate(4), 1.0);
  EXPECT_DOUBLE_EQ(cosine.rate(9), 2.0);
  EXPECT_DOUBLE_EQ(cosine.rate(59), 1.0);
  EXPECT_NEAR(cosine.rate(109), 0.0, 1e-15);
  EXPECT_NEAR(cosine.rate(500), 0.0, 1e-15);
  EXPECT_EQ(Schedule{.peak = 3.0}.rate(1000), 3.0);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ((Schedule{.peak = 3.0, .warmup = kMost}.rate(kMost)), 3.0);
}

TEST(NnAdam, RefusesNegativeSteps) {
  Model model(1);
  const Linear layer(model.scope(), 2, 2);
  Adam adam(model.parameters());
  adam.set_steps(3);
  EXPECT_EQ(message_of([&] { adam.set_steps(-1); }), "steps: expected 0 or more, got -1");
  EXPECT_EQ(adam.steps(), 3);
}

}  // namespace
}  // namespace fovea::nn
