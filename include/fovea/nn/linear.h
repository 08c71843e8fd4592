// SPDX-License-Identifier: Apache-2.0
//
// A linear layer with an optional bias.

#pragma once

#include <cstdint>

#include "fovea/export.h"
#include "fovea/nn/buffer.h"
#include "fovea/nn/model.h"

namespace fovea::nn {

/// Computes y = x W^T + b.
///
/// Conventions of all layers: forward returns a view of a buffer owned by the layer. The caller may
/// modify it, and it is valid until the layer's next forward. backward must follow forward, whose
/// `x` must still be valid. It adds to the gradients of the parameters and returns the gradient of
/// `x`, valid until the next backward. Errors are InvalidArgument naming the tensor, the expected
/// and the actual value.
class FOVEA_API Linear {
 public:
  /// Creates weight [out, in] and bias [out], uniform within 1 / sqrt(in), as in PyTorch's
  /// nn.Linear.
  Linear(const Scope& scope, std::int64_t in, std::int64_t out, bool bias = true);

  /// Takes x [..., in]. Returns [..., out].
  MutableTensorView forward(const TensorView& x);
  /// Takes grad_y [..., out]. Returns [..., in].
  MutableTensorView backward(const TensorView& grad_y);

 private:
  std::int64_t in_, out_;
  Parameter& weight_;
  Parameter* bias_;  // null without a bias
  TensorView x_;     // flattened to rows
  Shape shape_;      // shape of x
  Buffer y_, grad_x_;
};

}  // namespace fovea::nn
