// SPDX-License-Identifier: Apache-2.0
//
// Rows brought to a mean of 0 and a variance of 1.

#pragma once

#include <cstdint>

#include "fovea/export.h"
#include "fovea/nn/buffer.h"
#include "fovea/nn/model.h"

namespace fovea::nn {

/// y = (x - mean) / sqrt(variance + epsilon) * weight + bias for each row of the last dimension (Ba
/// et al. 2016), as PyTorch's nn.LayerNorm: the variance divides by the width.
class FOVEA_API LayerNorm {
 public:
  /// weight [width] of ones and bias [width] of zeros.
  LayerNorm(const Scope& scope, std::int64_t width, double epsilon = 1e-5);

  /// x [..., width]; of the same shape.
  MutableTensorView forward(const TensorView& x);
  MutableTensorView backward(const TensorView& grad_y);

 private:
  std::int64_t width_;
  double epsilon_;
  Parameter& weight_;
  Parameter& bias_;
  Shape shape_;
  Buffer normal_;   // (x - mean) / deviation, which backward needs rather than x
  Buffer inverse_;  // 1 / deviation, of each row
  Buffer sums_;     // of the gradients of weight and bias
  Buffer y_, grad_x_;
};

}  // namespace fovea::nn
