// SPDX-License-Identifier: Apache-2.0
//
// A plugin that uses fovea::nn, for unload_test.cc.

#include <algorithm>
#include <cmath>

#include "fovea/nn/model.h"
#include "fovea/nn/transformer.h"
#include "fovea/tensor.h"

/// Computes a layer of a transformer. Returns whether the result is finite and not constant.
extern "C" __attribute__((visibility("default"))) bool attend() {
  fovea::Tensor x(fovea::DType::kFloat32, {4, 128, 256});
  float next = 0;
  for (float& number : x.span<float>()) number = std::sin(++next);
  fovea::nn::Model model(1);
  fovea::nn::TransformerEncoderLayer layer(model.scope(), {.width = 256, .heads = 4});
  fovea::MutableTensorView y;
  for (int again = 0; again < 5; ++again) y = layer.forward(x);
  const float* const numbers = static_cast<const float*>(y.data());
  return std::all_of(numbers, numbers + y.size(), [](float each) { return std::isfinite(each); }) &&
         numbers[0] != numbers[1];
}
