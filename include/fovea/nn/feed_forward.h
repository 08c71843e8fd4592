// SPDX-License-Identifier: Apache-2.0
//
// Two linear maps with a bend between them.

#pragma once

#include <cstdint>

#include "fovea/export.h"
#include "fovea/nn/buffer.h"
#include "fovea/nn/dropout_layer.h"
#include "fovea/nn/linear.h"

namespace fovea::nn {

enum class Activation : std::uint8_t {
  kRelu,
  kGelu,  ///< x Phi(x), by the error function (Hendrycks and Gimpel 2016), PyTorch's default
};

/// linear2(dropout(activation(linear1(x)))), the block of Vaswani et al. 2017, sec. 3.3.
class FOVEA_API FeedForward {
 public:
  /// linear1 [inner, width] and linear2 [width, inner], put where `scope` is.
  FeedForward(const Scope& scope, std::int64_t width, std::int64_t inner,
              Activation activation = Activation::kRelu, double dropout = 0.0);

  /// x [..., width]; of the same shape.
  MutableTensorView forward(const TensorView& x);
  MutableTensorView backward(const TensorView& grad_y);

 private:
  Activation activation_;
  Linear linear1_;
  DropoutLayer dropout_;
  Linear linear2_;
  MutableTensorView inner_;  // what linear2 was given
  Buffer before_;            // what gelu was given
};

}  // namespace fovea::nn
