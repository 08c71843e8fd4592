// SPDX-License-Identifier: Apache-2.0
//
// A residual block around a layer.

#pragma once

#include <string_view>

#include "fovea/export.h"
#include "fovea/nn/dropout_layer.h"
#include "fovea/nn/layer_norm.h"

namespace fovea::nn {

/// The position of the layer norm in a residual block.
enum class NormPlace : std::uint8_t {
  kAfter,   ///< norm(x + dropout(f(x))), as in Vaswani et al. 2017
  kBefore,  ///< x + dropout(f(norm(x))), which trains deep stacks more easily (Xiong et al. 2020)
};

/// The residual sum, dropout and layer norm around a layer f.
class FOVEA_API Residual {
 public:
  /// `norm` is the name of the norm's parameters in `scope`.
  Residual(const Scope& scope, std::string_view norm, std::int64_t width, NormPlace place,
           double dropout);

  /// `f` takes a TensorView and returns a MutableTensorView, which forward modifies.
  template <class Layer>
  MutableTensorView forward(const TensorView& x, const Layer& f) {
    const bool before = place_ == NormPlace::kBefore;
    const MutableTensorView y = f(before ? TensorView(norm_.forward(x)) : x);
    dropout_.forward_add(y, x);
    return before ? y : norm_.forward(y);
  }

  /// `f_backward` has the same signature as `f`: it takes the gradient of f's result and returns
  /// the gradient of f's argument, which backward modifies.
  template <class Layer>
  MutableTensorView backward(const TensorView& grad_y, const Layer& f_backward) {
    if (place_ == NormPlace::kBefore) {
      const MutableTensorView grad_x = norm_.backward(f_backward(dropout_.backward(grad_y)));
      return with(grad_x, grad_y);
    }
    const TensorView grad_sum = norm_.backward(grad_y);
    return with(f_backward(dropout_.backward(grad_sum)), grad_sum);
  }

 private:
  /// Adds `past` to `gradient` and returns `gradient`.
  static MutableTensorView with(const MutableTensorView& gradient, const TensorView& past);

  NormPlace place_;
  LayerNorm norm_;
  DropoutLayer dropout_;
};

}  // namespace fovea::nn
