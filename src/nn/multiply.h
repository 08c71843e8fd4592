// SPDX-License-Identifier: Apache-2.0
//
// Matrix products: oneDNN in float32, plain loops in float64.

#pragma once

#include "fovea/tensor.h"

namespace fovea::nn {

/// A factor of a product: a matrix or its transpose.
struct Factor {
  TensorView matrix;  // rank 2, last dimension contiguous
  bool is_transposed = false;
};
inline Factor transposed(const TensorView& matrix) { return {matrix, true}; }

/// Computes result = left right, or result += left right if `add` is set. All three have the same
/// dtype, float32 or float64. The last dimension of the result is contiguous. Throws Stopped after
/// a stop request (nn/stop.h).
void multiply(const Factor& left, const Factor& right, const MutableTensorView& result,
              bool add = false);

/// Computes y = x W^T + b for each row of x. The bias may be undefined.
void affine(const TensorView& x, const TensorView& weight, const TensorView& bias,
            const MutableTensorView& y);

/// Computes the gradients of `affine`. Adds to `grad_weight` and to `grad_bias`; `grad_bias` may be
/// undefined. Writes the gradient of x, or adds to it if `add_to_grad_x` is set.
void affine_backward(const TensorView& grad_y, const TensorView& x, const TensorView& weight,
                     const MutableTensorView& grad_weight, const MutableTensorView& grad_bias,
                     const MutableTensorView& grad_x, bool add_to_grad_x = false);

}  // namespace fovea::nn
