// SPDX-License-Identifier: Apache-2.0
//
// A plugin that uses Fovea, for unload_test.cc.

#include <algorithm>

#include "fovea/attention.h"
#include "fovea/tensor.h"

/// Computes attention on four threads. Returns whether the result is right.
extern "C" __attribute__((visibility("default"))) bool attend() {
  const fovea::Shape shape{1, 8, 128, 64};
  fovea::Tensor ones(fovea::DType::kFloat32, shape), context(fovea::DType::kFloat32, shape);
  std::ranges::fill(ones.span<float>(), 1.0F);
  fovea::AttentionOptions options;
  options.execution.threads = 4;
  for (int again = 0; again < 20; ++again) {
    fovea::attention_forward(ones, ones, ones, options, {.context = context});
  }
  return std::ranges::all_of(context.span<float>(), [](float number) { return number == 1.0F; });
}
