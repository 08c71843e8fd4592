// SPDX-License-Identifier: Apache-2.0
//
// Dropout, optionally fused with a residual sum or ReLU (fovea/nn/dropout_layer.h).

#include "fovea/nn/dropout_layer.h"

#include <fmt/format.h>

#include "fovea/error.h"

#include "nn/passes.h"
#include "nn/rows.h"

namespace fovea::nn {

DropoutLayer::DropoutLayer(const Scope& scope, double probability)
    : model_(scope.model()), probability_(probability), number_(scope.model().new_dropout()) {
  if (!(probability >= 0.0 && probability < 1.0)) {
    throw InvalidArgument(
        fmt::format("dropout: expected a probability in [0, 1), got {}", probability));
  }
}

void DropoutLayer::forward(const MutableTensorView& x) { forward_add(x, {}); }

void DropoutLayer::forward_add(const MutableTensorView& x, const TensorView& residual) {
  check_numbers(x, model_.parameters().dtype(), "x");
  shape_ = x.shape();
  dropped_ = model_.training() && probability_ > 0.0;
  if (dropped_) {
    const std::int64_t count = x.size(), together = passes::kDrawnTogether;
    drop(x, residual, false,
         static_cast<std::uint8_t*>(
             kept_.of(DType::kBool, {(count + together - 1) / together * together}).data()));
  } else if (residual.defined()) {
    add(x, residual);
  }
}

void DropoutLayer::forward_relu(const MutableTensorView& x) {
  dropped_ = model_.training() && probability_ > 0.0;
  if (dropped_) return drop(x, {}, true, nullptr);
  with_real(x.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    Real* const numbers = static_cast<Real*>(x.data());
    for_each_rows(x.size(), 1, [=](std::int64_t begin, std::int64_t end) {
      // Written so that NaN stays NaN; std::max(0, x) would return 0.
      for (std::int64_t i = begin; i < end; ++i) numbers[i] = numbers[i] < 0 ? 0 : numbers[i];
    });
  });
}

void DropoutLayer::drop(const MutableTensorView& x, const TensorView& residual, bool relu,
                        std::uint8_t* kept) {
  with_real(x.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    passes::Drop<Real> pass{.rule = model_.dropout(number_, probability_),
                            .factor = static_cast<Real>(1.0 / (1.0 - probability_)),
                            .relu = relu,
                            .numbers = static_cast<Real*>(x.data()),
                            .past = static_cast<const Real*>(residual.data()),
                            .kept = kept,
                            .begin = 0,
                            .end = 0};
    const auto& passes = passes::table<Real>();
    for_each_range(x.size(), 128 * passes::kDrawnTogether,
                   [pass, &passes](std::int64_t begin, std::int64_t end) {
                     passes::Drop<Real> part = pass;
                     part.begin = begin;
                     part.end = end;
                     passes.drop(part);
                   });
  });
}

TensorView DropoutLayer::backward(const TensorView& grad_y) {
  check_numbers_of(grad_y, model_.parameters().dtype(), shape_, "grad_y");
  if (!dropped_) return grad_y;
  const MutableTensorView grad_x = grad_x_.of(grad_y.dtype(), grad_y.shape());
  backward_into(grad_y, grad_x);
  return grad_x;
}

void DropoutLayer::backward_in_place(const MutableTensorView& grad) {
  if (dropped_) backward_into(grad, grad);
}

void DropoutLayer::backward_relu(const MutableTensorView& grad, const TensorView& y) const {
  with_real(grad.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    const auto factor = static_cast<Real>(dropped_ ? 1.0 / (1.0 - probability_) : 1.0);
    Real* const to = static_cast<Real*>(grad.data());
    const Real* const after = static_cast<const Real*>(y.data());
    const auto& passes = passes::table<Real>();
    for_each_rows(grad.size(), 1, [=, &passes](std::int64_t begin, std::int64_t end) {
      passes.restore_relu(after + begin, factor, to + begin, end - begin);
    });
  });
}

void DropoutLayer::backward_into(const TensorView& grad_y, const MutableTensorView& grad_x) const {
  with_real(grad_y.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    const auto factor = static_cast<Real>(1.0 / (1.0 - probability_));
    const Real* const from = static_cast<const Real*>(grad_y.data());
    Real* const to = static_cast<Real*>(grad_x.data());
    const std::uint8_t* const kept = static_cast<const std::uint8_t*>(kept_.last().data());
    const auto& passes = passes::table<Real>();
    for_each_rows(grad_y.size(), 1, [=, &passes](std::int64_t begin, std::int64_t end) {
      passes.restore(kept + begin, factor, from + begin, to + begin, end - begin);
    });
  });
}

}  // namespace fovea::nn
