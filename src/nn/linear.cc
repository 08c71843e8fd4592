// SPDX-License-Identifier: Apache-2.0
//
// A linear layer with an optional bias (fovea/nn/linear.h).

#include "fovea/nn/linear.h"

#include <cmath>
#include <string_view>

#include "core/fail.h"
#include "nn/multiply.h"
#include "nn/rows.h"

namespace fovea::nn {
namespace {

std::int64_t checked_features(std::string_view name, std::int64_t features) {
  if (features >= 1) return features;
  fail("{}: expected 1 or more features, got {}", name, features);
}

}  // namespace

Linear::Linear(const Scope& scope, std::int64_t in, std::int64_t out, bool bias)
    : in_(checked_features("in", in)),
      out_(checked_features("out", out)),
      weight_(scope.add_uniform("weight", {out, in}, 1.0 / std::sqrt(static_cast<double>(in)))),
      bias_(bias ? &scope.add_uniform("bias", {out}, 1.0 / std::sqrt(static_cast<double>(in)))
                 : nullptr) {}

MutableTensorView Linear::forward(const TensorView& x) {
  const DType dtype = weight_.value.dtype();
  x_ = as_rows(x, dtype, in_, "x");
  shape_ = x.shape();
  const MutableTensorView y = y_.of(dtype, {x_.extent(0), out_});
  affine(x_, weight_.value, bias_ ? TensorView(bias_->value) : TensorView(), y);
  return reshaped(y, with_width(shape_, out_));
}

MutableTensorView Linear::backward(const TensorView& grad_y) {
  const DType dtype = weight_.value.dtype();
  const TensorView grad = as_rows_of(grad_y, dtype, with_width(shape_, out_), "grad_y");
  const MutableTensorView grad_x = grad_x_.of(dtype, {grad.extent(0), in_});
  affine_backward(grad, x_, weight_.value, weight_.gradient,
                  bias_ ? MutableTensorView(bias_->gradient) : MutableTensorView(), grad_x);
  return reshaped(grad_x, shape_);
}

}  // namespace fovea::nn
