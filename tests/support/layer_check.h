// SPDX-License-Identifier: Apache-2.0
//
// Checks a layer's backward pass against finite differences of its forward pass in float64, for
// every input and every parameter.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/nn/model.h"
#include "fovea/random.h"
#include "fovea/tensor.h"

#include "support/differences.h"

namespace fovea::test {

/// The layer to check. `forward` reads the inputs, which change between calls. `backward` receives
/// the gradient of forward's result and returns the gradient of each input, in order.
struct LayerCheck {
  nn::Model& model;
  std::vector<Tensor*> inputs;
  std::function<TensorView()> forward;
  std::function<std::vector<TensorView>(const TensorView& grad_y)> backward;
};

/// Checks all gradients of the loss sum(factors * y), with random factors.
inline void expect_gradients(const LayerCheck& check) {
  const Tensor y(check.forward());
  const Tensor factors = RandomState(4711).randn(y.shape());
  const auto loss = [&] {
    const TensorView now = check.forward();
    double sum = 0.0;
    for_each_index(now.shape(), [&](const Index& at) { sum += now.value(at) * factors.value(at); });
    return sum;
  };

  check.model.parameters().zero_gradients();
  check.forward();
  std::vector<Tensor> found;
  for (const TensorView& gradient : check.backward(factors)) found.emplace_back(gradient);
  ASSERT_EQ(found.size(), check.inputs.size());
  std::vector<Tensor> found_of_parameters;
  for (const nn::Parameter& parameter : check.model.parameters()) {
    found_of_parameters.push_back(parameter.gradient);
  }

  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(same_gradient(found[i], differences(*check.inputs[i], loss))) << "input " << i;
  }
  std::size_t number = 0;
  for (nn::Parameter& parameter : check.model.parameters()) {
    EXPECT_TRUE(same_gradient(found_of_parameters[number++], differences(parameter.value, loss)))
        << parameter.name;
  }
}

/// Checks the elements, last dimension fastest, against those that another program printed to 15
/// digits.
inline void expect_numbers(const TensorView& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), static_cast<std::int64_t>(expected.size()));
  std::size_t next = 0;
  for_each_index(found.shape(), [&](const Index& at) {
    EXPECT_NEAR(found.value(at), expected[next++], 1e-14) << to_string(at);
  });
}

/// Fills all parameters with normal numbers: initial ones and zeros would hide errors.
inline void draw_parameters(nn::Model& model, std::uint64_t seed = 99) {
  RandomState random(seed);
  for (nn::Parameter& parameter : model.parameters()) {
    for_each_index(parameter.value.shape(),
                   [&](const Index& at) { set_value(parameter.value, at, 0.5 * random.randn()); });
  }
}

}  // namespace fovea::test
