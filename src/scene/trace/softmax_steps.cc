// SPDX-License-Identifier: Apache-2.0
//
// Recomputes the parts of softmax from the final scores (softmax_steps.h), in the order and the
// arithmetic of the reference (reference/row_attention.h), which keeps only the weights.

#include "scene/trace/softmax_steps.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <limits>

namespace fovea::scene {
namespace {

template <class Real>
constexpr Real kMinusInfinity = -std::numeric_limits<Real>::infinity();

/// One row of scores, with the sink of its head (-inf if there is none).
template <class Real>
struct ScoreRow {
  std::span<const Real> scores;
  std::span<const bool> visible;
  Real sink;

  /// Returns the largest visible score or the sink. A NaN is replaced by the next score, as in the
  /// reference.
  Real maximum() const {
    Real most = kMinusInfinity<Real>;
    bool empty = true;
    for (std::size_t j = 0; j < scores.size(); ++j) {
      if (!visible[j]) continue;
      if (empty || !(scores[j] <= most)) most = scores[j];
      empty = false;
    }
    return empty || sink > most ? sink : most;
  }
};

template <class Real>
SoftmaxSteps steps_of(const Tensor& scores, const Tensor& visible, std::span<const double> sinks,
                      bool shifts) {
  const Shape& shape = scores.shape();
  SoftmaxSteps steps{
      {}, Tensor(scores.dtype(), shape), Tensor(scores.dtype(), {shape[0], shape[1], shape[2]})};
  if (shifts) {
    steps.shifted = Tensor(scores.dtype(), shape);
    std::ranges::fill(steps.shifted.span<Real>(), kMinusInfinity<Real>);
  }
  const auto keys = static_cast<std::size_t>(shape[3]);
  std::size_t first = 0;
  for_each_index(steps.sums.shape(), [&](const Index& at) {
    const ScoreRow<Real> row{
        scores.span<Real>().subspan(first, keys), visible.span<bool>().subspan(first, keys),
        sinks.empty() ? kMinusInfinity<Real>
                      : static_cast<Real>(sinks[static_cast<std::size_t>(at[1])])};
    const Real shift = shifts ? row.maximum() : Real(0);
    Real& sum = steps.sums.at<Real>(at);
    for (std::size_t j = 0; j < keys; ++j) {
      if (!row.visible[j]) continue;
      const Real shifted = row.scores[j] - shift;
      if (shifts) steps.shifted.span<Real>()[first + j] = shifted;
      const Real exponential = std::exp(shifted);
      steps.exponentials.span<Real>()[first + j] = exponential;
      sum += exponential;
    }
    if (!sinks.empty()) sum += std::exp(row.sink - shift);
    first += keys;
  });
  return steps;
}

}  // namespace

SoftmaxSteps softmax_steps(const Tensor& scores, const Tensor& visible,
                           std::span<const double> sinks, reference::Normalization kind) {
  assert(kind != reference::Normalization::kSum);
  const bool shifts = kind == reference::Normalization::kSoftmax;
  return scores.dtype() == DType::kFloat32 ? steps_of<float>(scores, visible, sinks, shifts)
                                           : steps_of<double>(scores, visible, sinks, shifts);
}

}  // namespace fovea::scene
