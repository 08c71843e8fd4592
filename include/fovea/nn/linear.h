// SPDX-License-Identifier: Apache-2.0
//
// A linear map with a bias.

#pragma once

#include <cstdint>

#include "fovea/export.h"
#include "fovea/nn/buffer.h"
#include "fovea/nn/model.h"

namespace fovea::nn {

/// y = x W^T + b.
///
/// As all layers here: forward returns memory of the layer's own, the caller's to change, until the
/// layer's next forward; backward follows forward, whose `x` has to be there still, adds to the
/// gradients of the parameters and returns the gradient of `x`, until the next backward.
/// Errors throw InvalidArgument naming the tensor, what was expected and what came.
class FOVEA_API Linear {
 public:
  /// weight [out, in] and bias [out], uniform within 1 / sqrt(in), as PyTorch's nn.Linear.
  Linear(const Scope& scope, std::int64_t in, std::int64_t out, bool bias = true);

  /// x [..., in]; returns [..., out].
  MutableTensorView forward(const TensorView& x);
  /// grad_y [..., out]; returns [..., in].
  MutableTensorView backward(const TensorView& grad_y);

 private:
  std::int64_t in_, out_;
  Parameter& weight_;
  Parameter* bias_;  // null: none
  TensorView x_;     // as rows
  Shape shape_;      // of x
  Buffer y_, grad_x_;
};

}  // namespace fovea::nn
