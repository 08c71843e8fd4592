// SPDX-License-Identifier: Apache-2.0
//
// The loss of guessing tokens (fovea/nn/cross_entropy.h).

#include "fovea/nn/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fovea/error.h"

#include "nn/rows.h"

namespace fovea::nn {

CrossEntropy::CrossEntropy(const CrossEntropyOptions& options) : options_(options) {
  if (!(options.label_smoothing >= 0.0 && options.label_smoothing < 1.0)) {
    throw InvalidArgument(fmt::format("label_smoothing: expected a share in [0, 1), got {}",
                                      options.label_smoothing));
  }
}

double CrossEntropy::forward(const TensorView& logits, const TensorView& targets) {
  if (!logits.defined() || logits.rank() == 0 ||
      (logits.dtype() != DType::kFloat32 && logits.dtype() != DType::kFloat64)) {
    throw InvalidArgument("logits: expected float32 or float64 [..., classes]");
  }
  const std::int64_t classes = logits.extent(logits.rank() - 1);
  logits_ = as_rows(logits, logits.dtype(), classes, "logits");
  shape_ = logits.shape();
  const Shape leading(std::span(shape_.begin(), shape_.end() - 1));
  if (!targets.defined() || targets.dtype() != DType::kInt64 || targets.shape() != leading ||
      (targets.size() > 0 && targets.strides() != contiguous_strides(leading))) {
    throw InvalidArgument(fmt::format("targets: expected int64 {}, got {} {}", to_string(leading),
                                      targets.defined() ? dtype_name(targets.dtype()) : "none",
                                      to_string(targets.shape())));
  }
  const auto* const wanted = copy_numbers(targets, targets_);
  counted_ = correct_ = 0;
  for (std::int64_t r = 0; r < logits_.extent(0); ++r) {
    if (wanted[r] == options_.ignored) continue;
    if (wanted[r] < 0 || wanted[r] >= classes) {
      throw InvalidArgument(
          fmt::format("targets: expected 0 to {}, got {}", classes - 1, wanted[r]));
    }
    ++counted_;
  }

  // Loss, whether it was right, lse: one of each for each row.
  const MutableTensorView results = results_.of(DType::kFloat64, {logits_.extent(0), 3});
  with_real(logits_.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    for_each_rows(logits_.extent(0), classes, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        if (wanted[r] == options_.ignored) continue;
        const Real* const from = row<Real>(logits_, r);
        const Real* const largest = std::max_element(from, from + classes);
        double sum = 0.0, total = 0.0;
        for (std::int64_t c = 0; c < classes; ++c) {
          sum += static_cast<double>(std::exp(from[c] - *largest));
          total += static_cast<double>(from[c]);
        }
        const double lse = static_cast<double>(*largest) + std::log(sum);
        const double share = options_.label_smoothing;
        double* const to = row<double>(results, r);
        to[0] = lse - (1.0 - share) * static_cast<double>(from[wanted[r]]) -
                share * total / static_cast<double>(classes);
        to[1] = largest - from == wanted[r] ? 1.0 : 0.0;
        to[2] = lse;
      }
    });
  });
  double loss = 0.0;
  for (std::int64_t r = 0; r < logits_.extent(0); ++r) {
    if (wanted[r] == options_.ignored) continue;
    loss += row<double>(results, r)[0];
    if (row<double>(results, r)[1] != 0.0) ++correct_;
  }
  return counted_ == 0 ? 0.0 : loss / static_cast<double>(counted_);
}

MutableTensorView CrossEntropy::backward(double factor) {
  const std::int64_t classes = logits_.extent(1);
  const MutableTensorView grad = grad_.of(logits_.dtype(), logits_.shape());
  const auto* const wanted = static_cast<const std::int64_t*>(targets_.last().data());
  with_real(logits_.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    const auto scale =
        static_cast<Real>(factor / static_cast<double>(std::max<std::int64_t>(1, counted_)));
    const auto spread = static_cast<Real>(options_.label_smoothing / static_cast<double>(classes));
    const auto rest = static_cast<Real>(1.0 - options_.label_smoothing);
    for_each_rows(logits_.extent(0), classes, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        Real* const to = row<Real>(grad, r);
        if (wanted[r] == options_.ignored) {
          std::fill(to, to + classes, Real{0});
          continue;
        }
        const Real* const from = row<Real>(logits_, r);
        const auto lse = static_cast<Real>(row<double>(results_.last(), r)[2]);
        for (std::int64_t c = 0; c < classes; ++c) {
          to[c] = scale * (std::exp(from[c] - lse) - spread);
        }
        to[wanted[r]] -= scale * rest;
      }
    });
  });
  return reshaped(grad, shape_);
}

}  // namespace fovea::nn
