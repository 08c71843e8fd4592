// SPDX-License-Identifier: Apache-2.0
//
// Dropout of numbers (fovea/nn/dropout_layer.h).

#include "fovea/nn/dropout_layer.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>

#include "fovea/error.h"

#include "core/dropout.h"
#include "nn/rows.h"

namespace fovea::nn {
namespace {

// Philox gives four words for a counter: eight halves. So many counters side by side are what
// compilers make vectors of.
constexpr std::int64_t kCounters = 16, kNumbers = 8 * kCounters;

/// 1 where a number is kept, for kNumbers numbers from number `first`, a multiple of that, on.
void draw(const fovea::Dropout& rule, std::uint32_t threshold, std::int64_t first, bool* kept) {
  using Words = std::array<std::uint32_t, kCounters>;
  Words a, b{}, c, d, key0, key1;
  const auto counter = static_cast<std::uint64_t>(first / 8);
  for (std::uint32_t i = 0; i < kCounters; ++i) {
    a[i] = static_cast<std::uint32_t>(counter) + i;  // a multiple of kCounters: no carry
    b[i] = static_cast<std::uint32_t>(counter >> 32);
    c[i] = 0;
    d[i] = rule.call;
    key0[i] = static_cast<std::uint32_t>(rule.seed);
    key1[i] = static_cast<std::uint32_t>(rule.seed >> 32);
  }
  for (int round = 0; round < philox::kRounds; ++round) {
    for (std::size_t i = 0; i < kCounters; ++i) {
      const std::uint64_t low = std::uint64_t{philox::kMultiplier0} * a[i];
      const std::uint64_t high = std::uint64_t{philox::kMultiplier1} * c[i];
      a[i] = static_cast<std::uint32_t>(high >> 32) ^ b[i] ^ key0[i];
      b[i] = static_cast<std::uint32_t>(high);
      c[i] = static_cast<std::uint32_t>(low >> 32) ^ d[i] ^ key1[i];
      d[i] = static_cast<std::uint32_t>(low);
      key0[i] += philox::kWeyl0;
      key1[i] += philox::kWeyl1;
    }
  }
  const Words* const words[] = {&a, &b, &c, &d};
  for (std::size_t w = 0; w < 4; ++w) {
    for (std::size_t i = 0; i < kCounters; ++i) {
      kept[2 * w * kCounters + i] = ((*words[w])[i] & 0xFFFF) >= threshold;
      kept[(2 * w + 1) * kCounters + i] = ((*words[w])[i] >> 16) >= threshold;
    }
  }
}

}  // namespace

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
  if (!dropped_) {
    if (residual.defined()) add(x, residual);
    return;
  }
  const fovea::Dropout rule = model_.dropout(number_, probability_);
  const auto threshold = static_cast<std::uint32_t>(std::lround(probability_ * 0x1p16));
  const std::int64_t count = x.size();
  bool* const kept = static_cast<bool*>(
      kept_.of(DType::kBool, {(count + kNumbers - 1) / kNumbers * kNumbers}).data());
  with_real(x.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    const auto factor = static_cast<Real>(1.0 / (1.0 - probability_));
    Real* const numbers = static_cast<Real*>(x.data());
    const Real* const past = static_cast<const Real*>(residual.data());
    for_each_range(count, 128 * kNumbers, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; i += kNumbers) draw(rule, threshold, i, kept + i);
      if (past == nullptr) {
        for (std::int64_t i = begin; i < end; ++i) numbers[i] = kept[i] ? numbers[i] * factor : 0;
      } else {
        for (std::int64_t i = begin; i < end; ++i) {
          numbers[i] = past[i] + (kept[i] ? numbers[i] * factor : 0);
        }
      }
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

void DropoutLayer::backward_into(const TensorView& grad_y, const MutableTensorView& grad_x) const {
  with_real(grad_y.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    const auto factor = static_cast<Real>(1.0 / (1.0 - probability_));
    const Real* const from = static_cast<const Real*>(grad_y.data());
    Real* const to = static_cast<Real*>(grad_x.data());
    const bool* const kept = static_cast<const bool*>(kept_.last().data());
    for_each_rows(grad_y.size(), 1, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = kept[i] ? from[i] * factor : 0;
    });
  });
}

}  // namespace fovea::nn
