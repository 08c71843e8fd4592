// SPDX-License-Identifier: Apache-2.0
//
// Rows brought to a mean of 0 and a variance of 1 (fovea/nn/layer_norm.h).

#include "fovea/nn/layer_norm.h"

#include <cmath>

#include <fmt/format.h>

#include "fovea/error.h"

#include "nn/rows.h"

namespace fovea::nn {
namespace {

/// The sum of f(i) for i from 0 to count, in lanes, as vectors add.
template <class Real, class Term>
Real sum(std::int64_t count, const Term& term) {
  constexpr std::int64_t kLanes = 16;
  Real lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  Real total = 0;
  for (; i < count; ++i) total += term(i);
  for (const Real lane : lanes) total += lane;
  return total;
}

}  // namespace

LayerNorm::LayerNorm(const Scope& scope, std::int64_t width, double epsilon)
    : width_(width),
      epsilon_(epsilon),
      weight_(scope.add_constant("weight", {width}, 1.0)),
      bias_(scope.add_constant("bias", {width}, 0.0)) {
  if (!(epsilon > 0.0)) {
    throw InvalidArgument(fmt::format("epsilon: expected a number above 0, got {}", epsilon));
  }
}

MutableTensorView LayerNorm::forward(const TensorView& x) {
  const DType dtype = weight_.value.dtype();
  const TensorView rows = as_rows(x, dtype, width_, "x");
  shape_ = x.shape();
  const MutableTensorView y = y_.of(dtype, rows.shape());
  const MutableTensorView normal = normal_.of(dtype, rows.shape());
  const MutableTensorView inverse = inverse_.of(dtype, {rows.extent(0)});
  with_real(dtype, [&](auto zero) {
    using Real = decltype(zero);
    const Real* const weight = weight_.value.span<Real>().data();
    const Real* const bias = bias_.value.span<Real>().data();
    const auto width = static_cast<Real>(width_), epsilon = static_cast<Real>(epsilon_);
    for_each_rows(rows.extent(0), width_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const Real* const from = row<Real>(rows, r);
        Real* const normed = row<Real>(normal, r);
        Real* const to = row<Real>(y, r);
        const Real mean = sum<Real>(width_, [=](std::int64_t c) { return from[c]; }) / width;
        const Real variance =
            sum<Real>(width_, [=](std::int64_t c) { return (from[c] - mean) * (from[c] - mean); });
        const Real scale = 1 / std::sqrt(variance / width + epsilon);
        static_cast<Real*>(inverse.data())[r] = scale;
        for (std::int64_t c = 0; c < width_; ++c) {
          normed[c] = (from[c] - mean) * scale;
          to[c] = normed[c] * weight[c] + bias[c];
        }
      }
    });
  });
  return reshaped(y, shape_);
}

MutableTensorView LayerNorm::backward(const TensorView& grad_y) {
  const DType dtype = weight_.value.dtype();
  const TensorView grad = as_rows_of(grad_y, dtype, shape_, "grad_y");
  const MutableTensorView& normal = normal_.last();
  const MutableTensorView grad_x = grad_x_.of(dtype, grad.shape());
  add_column_sums(grad, bias_.gradient);
  add_column_sums(grad, weight_.gradient, normal);
  with_real(dtype, [&](auto zero) {
    using Real = decltype(zero);
    const Real* const weight = weight_.value.span<Real>().data();
    const auto width = static_cast<Real>(width_);
    for_each_rows(grad.extent(0), width_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const Real* const from = row<Real>(grad, r);
        const Real* const normed = row<Real>(TensorView(normal), r);
        Real* const to = row<Real>(grad_x, r);
        const Real scale = static_cast<const Real*>(inverse_.last().data())[r];
        // What moves all of a row alike, or stretches it, changes nothing.
        const Real mean =
            sum<Real>(width_, [=](std::int64_t c) { return from[c] * weight[c]; }) / width;
        const Real stretch =
            sum<Real>(width_, [=](std::int64_t c) { return from[c] * weight[c] * normed[c]; }) /
            width;
        for (std::int64_t c = 0; c < width_; ++c) {
          to[c] = scale * (from[c] * weight[c] - mean - normed[c] * stretch);
        }
      }
    });
  });
  return reshaped(grad_x, shape_);
}

}  // namespace fovea::nn
