// SPDX-License-Identifier: Apache-2.0
//
// A program outside Fovea that trains a layer: it links fovea::nn and prints "ok".

#include <cstdio>

#include "fovea/nn/linear.h"
#include "fovea/nn/optimizer.h"
#include "fovea/random.h"

int main() {
  fovea::nn::Model model(1);
  fovea::nn::Linear layer(model.scope(), 3, 3);
  fovea::nn::Adam adam(model.parameters());
  const fovea::Tensor x =
      fovea::convert(fovea::RandomState(2).randn({16, 3}), fovea::DType::kFloat32);
  // Learns the identity.
  double loss = 0.0;
  for (int step = 0; step < 500; ++step) {
    const fovea::MutableTensorView y = layer.forward(x);
    loss = 0.0;
    fovea::for_each_index(y.shape(), [&](const fovea::Index& at) {
      const double error = y.value(at) - x.value(at);
      loss += error * error / 2;
      fovea::set_value(y, at, error);
    });
    model.parameters().zero_gradients();
    layer.backward(y);
    adam.step(0.01);
  }
  if (!(loss < 1e-3)) return 1;
  std::puts("ok");
}
