// SPDX-License-Identifier: Apache-2.0
//
// Products of matrices: oneDNN's in float32, plain loops in float64.

#pragma once

#include "fovea/tensor.h"

namespace fovea::nn {

/// A matrix as a factor: as it is, or transposed.
struct Factor {
  TensorView matrix;  // rank 2, last dimension contiguous
  bool is_transposed = false;
};
inline Factor transposed(const TensorView& matrix) { return {matrix, true}; }

/// result = left right, or result += left right. All of one type, float32 or float64; the result's
/// last dimension contiguous.
void multiply(const Factor& left, const Factor& right, const MutableTensorView& result,
              bool add = false);

/// y = x W^T + b; b may be absent. x and y are rows.
void affine(const TensorView& x, const TensorView& weight, const TensorView& bias,
            const MutableTensorView& y);

/// The gradients of `affine`: adds to those of weight and of bias, which may be absent, and writes,
/// or adds to, that of x.
void affine_backward(const TensorView& grad_y, const TensorView& x, const TensorView& weight,
                     const MutableTensorView& grad_weight, const MutableTensorView& grad_bias,
                     const MutableTensorView& grad_x, bool add_to_grad_x = false);

}  // namespace fovea::nn
