// SPDX-License-Identifier: Apache-2.0
//
// Dropout of activations, optionally fused with a residual sum or a ReLU.

#pragma once

#include <cstdint>

#include "fovea/export.h"
#include "fovea/nn/buffer.h"
#include "fovea/nn/model.h"

namespace fovea::nn {

/// While the model is training, zeroes each element with this probability and divides the others by
/// 1 - probability (Srivastava et al. 2014). The choice depends only on the model's seed and step,
/// the layer's number and the element's index, so a step can be reproduced.
class FOVEA_API DropoutLayer {
 public:
  /// The probability must be in [0, 1); it is used with a resolution of 2^-16.
  DropoutLayer(const Scope& scope, double probability);

  /// Sets x to dropout(x).
  void forward(const MutableTensorView& x);
  /// Sets x to residual + dropout(x). Both have the same shape.
  void forward_add(const MutableTensorView& x, const TensorView& residual);
  /// Sets x to dropout(relu(x)).
  void forward_relu(const MutableTensorView& x);
  /// Returns the gradient of x, given the gradient of the result. The gradient of `residual` is
  /// grad_y itself. Returns grad_y if nothing was dropped, otherwise a view of a buffer owned by
  /// the layer, valid until the next backward.
  TensorView backward(const TensorView& grad_y);
  /// Replaces the gradient of the result by the gradient of x.
  void backward_in_place(const MutableTensorView& grad);
  /// Computes the gradient for forward_relu in place, given the result y of forward_relu.
  void backward_relu(const MutableTensorView& grad, const TensorView& y) const;

 private:
  void drop(const MutableTensorView& x, const TensorView& residual, bool relu, std::uint8_t* kept);
  void backward_into(const TensorView& grad_y, const MutableTensorView& grad_x) const;

  Model& model_;
  double probability_;
  std::uint32_t number_;
  bool dropped_ = false;  // whether the last forward dropped elements
  Shape shape_;           // shape of its x
  Buffer kept_;           // per element: whether it was kept
  Buffer grad_x_;
};

}  // namespace fovea::nn
