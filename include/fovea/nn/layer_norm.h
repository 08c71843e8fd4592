// SPDX-License-Identifier: Apache-2.0
//
// Layer normalization.

#pragma once

#include <cstdint>

#include "fovea/export.h"
#include "fovea/nn/buffer.h"
#include "fovea/nn/model.h"

namespace fovea::nn {

/// Computes y = (x - mean) / sqrt(variance + epsilon) * weight + bias for each row of the last
/// dimension (Ba et al. 2016), as PyTorch's nn.LayerNorm does. The variance is the biased one,
/// divided by the width.
class FOVEA_API LayerNorm {
 public:
  /// Creates weight [width], ones, and bias [width], zeros.
  LayerNorm(const Scope& scope, std::int64_t width, double epsilon = 1e-5);

  /// Takes x [..., width] and returns the same shape.
  MutableTensorView forward(const TensorView& x);
  MutableTensorView backward(const TensorView& grad_y);

 private:
  std::int64_t width_;
  double epsilon_;
  Parameter& weight_;
  Parameter& bias_;
  Shape shape_;
  Buffer normal_;   // (x - mean) / deviation; backward uses it instead of x
  Buffer inverse_;  // 1 / deviation per row
  Buffer sums_;     // partial sums of the gradients of weight and bias
  Buffer y_, grad_x_;
};

}  // namespace fovea::nn
