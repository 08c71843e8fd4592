// SPDX-License-Identifier: Apache-2.0
//
// A feed-forward block: two linear layers with an activation between them.

#pragma once

#include <cstdint>

#include "fovea/export.h"
#include "fovea/nn/buffer.h"
#include "fovea/nn/dropout_layer.h"
#include "fovea/nn/linear.h"

namespace fovea::nn {

enum class Activation : std::uint8_t {
  kRelu,
  kGelu,  ///< x Phi(x), with the exact error function (Hendrycks and Gimpel 2016), PyTorch's
          ///< default
};

/// linear2(dropout(activation(linear1(x)))), the block of Vaswani et al. 2017, sec. 3.3.
class FOVEA_API FeedForward {
 public:
  /// Creates linear1 [inner, width] and linear2 [width, inner] directly in `scope`.
  FeedForward(const Scope& scope, std::int64_t width, std::int64_t inner,
              Activation activation = Activation::kRelu, double dropout = 0.0);

  /// Takes x [..., width] and returns the same shape.
  MutableTensorView forward(const TensorView& x);
  MutableTensorView backward(const TensorView& grad_y);

 private:
  Activation activation_;
  Linear linear1_;
  DropoutLayer dropout_;
  Linear linear2_;
  MutableTensorView inner_;  // input of linear2
  Buffer before_;            // input of gelu
};

}  // namespace fovea::nn
