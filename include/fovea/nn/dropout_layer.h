// SPDX-License-Identifier: Apache-2.0
//
// Dropout of numbers, and the sum with what went past the layers before.

#pragma once

#include <cstdint>

#include "fovea/export.h"
#include "fovea/nn/buffer.h"
#include "fovea/nn/model.h"

namespace fovea::nn {

/// Leaves out each number with this probability and divides what it keeps by 1 - probability
/// (Srivastava et al. 2014), where the model is training. Which are kept follows from the model's
/// seed and step, the layer's number and the place, so that a step can be made again.
class FOVEA_API DropoutLayer {
 public:
  /// Probability in [0, 1), to the 16th binary place.
  DropoutLayer(const Scope& scope, double probability);

  /// x becomes dropout(x), in place.
  void forward(const MutableTensorView& x);
  /// x becomes residual + dropout(x), in place; of one shape.
  void forward_add(const MutableTensorView& x, const TensorView& residual);
  /// x becomes dropout(relu(x)), in place.
  void forward_relu(const MutableTensorView& x);
  /// The gradient of x, from that of the result; that of `residual` is grad_y itself. grad_y itself
  /// where nothing was dropped, else memory of the layer's own, until the next backward.
  TensorView backward(const TensorView& grad_y);
  /// The same in place.
  void backward_in_place(const MutableTensorView& grad);
  /// The same after forward_relu, from what that made of x.
  void backward_relu(const MutableTensorView& grad, const TensorView& y) const;

 private:
  void drop(const MutableTensorView& x, const TensorView& residual, bool relu, std::uint8_t* kept);
  void backward_into(const TensorView& grad_y, const MutableTensorView& grad_x) const;

  Model& model_;
  double probability_;
  std::uint32_t number_;
  bool dropped_ = false;  // in the last forward
  Shape shape_;           // of its x
  Buffer kept_;           // for each number whether it was kept
  Buffer grad_x_;
};

}  // namespace fovea::nn
