// SPDX-License-Identifier: Apache-2.0
//
// Two linear layers with an activation between them (fovea/nn/feed_forward.h).

#include "fovea/nn/feed_forward.h"

#include <cmath>
#include <numbers>

#include "nn/rows.h"

namespace fovea::nn {
namespace {

/// Calls work(i) for the index of every element, in parallel.
template <class Callable>
void for_each_number(const TensorView& tensor, const Callable& work) {
  for_each_rows(tensor.size(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) work(i);
  });
}

/// Returns the standard normal distribution function at x.
template <class Real>
Real normal_share(Real x) {
  return Real{0.5} * std::erfc(-x * std::numbers::sqrt2_v<Real> / 2);
}

template <class Real>
Real gelu_slope(Real x) {
  constexpr Real kDensity = std::numbers::inv_sqrtpi_v<Real> / std::numbers::sqrt2_v<Real>;
  return normal_share(x) + x * kDensity * std::exp(-x * x / 2);
}

}  // namespace

FeedForward::FeedForward(const Scope& scope, std::int64_t width, std::int64_t inner,
                         Activation activation, double dropout)
    : activation_(activation),
      linear1_(scope.in("linear1"), width, inner),
      dropout_(scope, dropout),
      linear2_(scope.in("linear2"), inner, width) {}

MutableTensorView FeedForward::forward(const TensorView& x) {
  inner_ = linear1_.forward(x);
  if (activation_ == Activation::kRelu) {
    dropout_.forward_relu(inner_);
    return linear2_.forward(inner_);
  }
  with_real(inner_.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    Real* const numbers = static_cast<Real*>(inner_.data());
    Real* const before = static_cast<Real*>(before_.of(inner_.dtype(), inner_.shape()).data());
    for_each_number(inner_, [=](std::int64_t i) {
      before[i] = numbers[i];
      numbers[i] *= normal_share(numbers[i]);
    });
  });
  dropout_.forward(inner_);
  return linear2_.forward(inner_);
}

MutableTensorView FeedForward::backward(const TensorView& grad_y) {
  const MutableTensorView grad = linear2_.backward(grad_y);
  if (activation_ == Activation::kRelu) {
    dropout_.backward_relu(grad, inner_);
    return linear1_.backward(grad);
  }
  dropout_.backward_in_place(grad);
  with_real(grad.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    Real* const numbers = static_cast<Real*>(grad.data());
    const Real* const before = static_cast<const Real*>(before_.last().data());
    for_each_number(grad, [=](std::int64_t i) { numbers[i] *= gelu_slope(before[i]); });
  });
  return linear1_.backward(grad);
}

}  // namespace fovea::nn
