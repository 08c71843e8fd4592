// SPDX-License-Identifier: Apache-2.0
//
// Layer normalisation: rows of mean 0 and variance 1 (fovea/nn/layer_norm.h).

#include "fovea/nn/layer_norm.h"

#include <algorithm>

#include "core/fail.h"
#include "nn/passes.h"
#include "nn/rows.h"

namespace fovea::nn {
namespace {

template <class Real>
passes::Norm<Real> norm_pass(const Parameter& weight, const Parameter& bias, double epsilon,
                             const Buffer& normal, const Buffer& inverse) {
  return {.width = weight.value.size(),
          .epsilon = static_cast<Real>(epsilon),
          .weight = weight.value.span<Real>().data(),
          .bias = bias.value.span<Real>().data(),
          .normal = static_cast<Real*>(normal.last().data()),
          .inverse = static_cast<Real*>(inverse.last().data())};
}

}  // namespace

LayerNorm::LayerNorm(const Scope& scope, std::int64_t width, double epsilon)
    : width_(width),
      epsilon_(epsilon),
      weight_(scope.add_constant("weight", {width}, 1.0)),
      bias_(scope.add_constant("bias", {width}, 0.0)) {
  if (!(epsilon > 0.0)) {
    fail("epsilon: expected a number above 0, got {}", epsilon);
  }
}

MutableTensorView LayerNorm::forward(const TensorView& x) {
  const DType dtype = weight_.value.dtype();
  const TensorView rows = as_rows(x, dtype, width_, "x");
  shape_ = x.shape();
  const MutableTensorView y = y_.of(dtype, rows.shape());
  normal_.of(dtype, rows.shape());
  inverse_.of(dtype, {rows.extent(0)});
  with_real(dtype, [&](auto zero) {
    using Real = decltype(zero);
    const auto norm = norm_pass<Real>(weight_, bias_, epsilon_, normal_, inverse_);
    const auto& passes = passes::table<Real>();
    for_each_rows(rows.extent(0), width_, [&](std::int64_t begin, std::int64_t end) {
      passes.norm_forward(norm, row<Real>(rows, 0), row<Real>(y, 0), begin, end);
    });
  });
  return reshaped(y, shape_);
}

MutableTensorView LayerNorm::backward(const TensorView& grad_y) {
  const DType dtype = weight_.value.dtype();
  const TensorView grad = as_rows_of(grad_y, dtype, shape_, "grad_y");
  const MutableTensorView grad_x = grad_x_.of(dtype, grad.shape());
  with_real(dtype, [&](auto zero) {
    using Real = decltype(zero);
    const auto norm = norm_pass<Real>(weight_, bias_, epsilon_, normal_, inverse_);
    const auto& passes = passes::table<Real>();
    Real* const sums = static_cast<Real*>(sums_.of(dtype, {2 * width_}).data());
    std::fill(sums, sums + 2 * width_, Real{0});
    add_sums_of_rows(grad.extent(0), 2 * width_, sums,
                     [&](std::int64_t begin, std::int64_t end, Real* to) {
                       passes.norm_backward(norm, row<Real>(grad, 0), row<Real>(grad_x, 0), to,
                                            to + width_, begin, end);
                     });
    passes.add(weight_.gradient.span<Real>().data(), sums, width_);
    passes.add(bias_.gradient.span<Real>().data(), sums + width_, width_);
  });
  return reshaped(grad_x, shape_);
}

}  // namespace fovea::nn
