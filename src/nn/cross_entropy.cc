// SPDX-License-Identifier: Apache-2.0
//
// Cross-entropy loss of token predictions (fovea/nn/cross_entropy.h).

#include "fovea/nn/cross_entropy.h"

#include <algorithm>

#include "fovea/error.h"

#include "core/fail.h"
#include "nn/passes.h"
#include "nn/rows.h"

namespace fovea::nn {

namespace {

template <class Real>
passes::Logits<Real> logits_pass(const TensorView& logits, const std::int64_t* wanted,
                                 const CrossEntropyOptions& options,
                                 const MutableTensorView& results) {
  return {.classes = logits.extent(1),
          .row_stride = logits.strides()[0],
          .logits = static_cast<const Real*>(logits.data()),
          .wanted = wanted,
          .ignored = options.ignored.value_or(-1),
          .smoothing = options.label_smoothing,
          .results = static_cast<double*>(results.data())};
}

}  // namespace

CrossEntropy::CrossEntropy(const CrossEntropyOptions& options) : options_(options) {
  if (!(options.label_smoothing >= 0.0 && options.label_smoothing < 1.0)) {
    fail("label_smoothing: expected a share in [0, 1), got {}", options.label_smoothing);
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
    fail("targets: expected int64 {}, got {} {}", to_string(leading),
         targets.defined() ? dtype_name(targets.dtype()) : "none", to_string(targets.shape()));
  }
  const auto* const wanted = copy_numbers(targets, targets_);
  counted_ = correct_ = 0;
  for (std::int64_t r = 0; r < targets.size(); ++r) {
    if (wanted[r] == options_.ignored) continue;
    if (classes == 0) fail("targets: expected none, as there are no classes, got {}", wanted[r]);
    if (wanted[r] < 0 || wanted[r] >= classes) {
      fail("targets: expected 0 to {}, got {}", classes - 1, wanted[r]);
    }
    ++counted_;
  }

  const MutableTensorView results =
      results_.of(DType::kFloat64, {logits_.extent(0), passes::kLossResults});
  with_real(logits_.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    const auto pass = logits_pass<Real>(logits_, wanted, options_, results);
    const auto& passes = passes::table<Real>();
    for_each_rows(logits_.extent(0), classes, [&](std::int64_t begin, std::int64_t end) {
      passes.cross_entropy(pass, begin, end);
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
  const double scale = factor / static_cast<double>(std::max<std::int64_t>(1, counted_));
  with_real(logits_.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    const auto pass = logits_pass<Real>(logits_, wanted, options_, results_.last());
    const auto& passes = passes::table<Real>();
    for_each_rows(logits_.extent(0), classes, [&](std::int64_t begin, std::int64_t end) {
      passes.cross_entropy_gradient(pass, scale, row<Real>(grad, 0), begin, end);
    });
  });
  return reshaped(grad, shape_);
}

}  // namespace fovea::nn
