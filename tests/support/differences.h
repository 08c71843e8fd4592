// SPDX-License-Identifier: Apache-2.0
//
// Finite differences: a loss that is linear in the outputs of attention, its central differences
// with respect to each element of the problem, and the comparison with
// reference::attention_gradients. Tested in unit/support/differences_test.cc.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/random.h"
#include "fovea/reference.h"
#include "fovea/tensor.h"

#include "support/exactness.h"
#include "support/random_problem.h"

namespace fovea::test {

/// The outputs that a loss depends on.
struct LossParts {
  bool context = true;
  bool lse = true;
  bool weights = true;
};

/// The sum of all outputs, each times a random factor.
struct Loss {
  Tensor context, lse, weights;

  Loss(const ProblemShape& shape, std::int64_t value_dim, const LossParts& parts = {},
       std::uint64_t seed = 1000) {
    RandomState random(seed);
    const auto draw = [&](bool wanted, const Shape& extents) {
      Tensor numbers = random.randn(extents);
      return wanted ? numbers : Tensor();
    };
    const std::int64_t b = shape.batch, h = shape.q_heads, n = shape.q_len;
    context = draw(parts.context, {b, h, n, value_dim});
    lse = draw(parts.lse, {b, h, n});
    weights = draw(parts.weights, {b, h, n, shape.kv_len});
  }

  reference::OutputGradients gradients() const { return {context, lse, weights}; }

  /// Returns the loss. Infinite outputs, the lse of fully masked rows, are skipped.
  double of(const reference::Inputs& in, const AttentionOptions& options) const {
    const reference::Steps steps = reference::attention_steps(in, options);
    double sum = 0.0;
    for (const auto& [factors, results] :
         {std::pair<const Tensor*, const Tensor*>(&context, &steps.context),
          {&lse, &steps.lse},
          {&weights, &steps.weights}}) {
      for (std::size_t n = 0; factors->defined() && n < factors->span<double>().size(); ++n) {
        const double result = results->span<double>()[n];
        if (std::isfinite(result)) sum += factors->span<double>()[n] * result;
      }
    }
    return sum;
  }
};

/// Returns the central difference of the loss with respect to each element of `numbers`, whose
/// values are restored.
inline Tensor differences(const MutableTensorView& numbers, const std::function<double()>& loss) {
  constexpr double kStep = 1e-5;
  Tensor result(DType::kFloat64, numbers.shape());
  for_each_index(numbers.shape(), [&](const Index& at) {
    double& number = numbers.at<double>(at);
    const double before = number;
    number = before + kStep;
    const double above = loss();
    number = before - kStep;
    const double below = loss();
    number = before;
    result.at<double>(at) = (above - below) / (2 * kStep);
  });
  return result;
}

/// Checks gradients to the accuracy of central differences: the error is of order step^2 = 1e-10,
/// plus the rounding error of the loss divided by the step, 1e-16 / 1e-5.
inline testing::AssertionResult same_gradient(const Tensor& found, const Tensor& by_differences) {
  if (!found.defined() || found.shape() != by_differences.shape()) {
    return testing::AssertionFailure() << "shapes: found " << to_string(found.shape())
                                       << ", by differences " << to_string(by_differences.shape());
  }
  double size = 1.0;
  for (const double x : by_differences.span<double>()) size = std::max(size, std::abs(x));
  const Deviation worst = deviation(found, by_differences);
  if (worst.largest <= 1e-8 * size) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "found " << worst.found << " at " << to_string(worst.at) << ", by differences "
         << worst.expected << "; the largest is " << size;
}

/// The differentiable tensors of the options. The options hold views of them, so that finite
/// differences can change them.
struct Numbers {
  Tensor bias, relative;

  /// Adds a bias of any shape that broadcasts.
  void add_bias(AttentionOptions& options, const Shape& shape, std::uint64_t seed = 2000) {
    bias = RandomState(seed).randn(shape);
    options.score.bias = bias;
  }
  /// Adds a table with 8 buckets.
  void add_relative(AttentionOptions& options, std::int64_t q_heads, bool bidirectional = true,
                    std::uint64_t seed = 3000) {
    relative = RandomState(seed).randn({8, q_heads});
    options.score.relative = RelativeTable{relative, bidirectional, 6};
  }
};

/// Checks every gradient of a problem against finite differences; returns the number of elements
/// compared.
inline std::int64_t expect_differences(RandomProblem& p, AttentionOptions options, Numbers& numbers,
                                       const Loss& loss) {
  const reference::Gradients found =
      reference::attention_gradients(p.inputs(), loss.gradients(), options);
  const auto value = [&] { return loss.of(p.inputs(), options); };
  std::int64_t compared = 0;
  const auto compare = [&](const char* name, const MutableTensorView& operand,
                           const Tensor& gradient) {
    EXPECT_EQ(gradient.defined(), operand.defined()) << name;
    if (!operand.defined()) return;
    EXPECT_TRUE(same_gradient(gradient, differences(operand, value))) << name;
    compared += gradient.size();
  };
  compare("query", p.query, found.query);
  compare("key", p.key, found.key);
  compare("value", p.value, found.value);
  compare("bias", numbers.bias, found.bias);
  compare("relative", numbers.relative, found.relative);
  std::vector<double>& sinks = options.score.sinks;
  const Shape heads{static_cast<std::int64_t>(sinks.size())};
  compare("sinks", sinks.empty() ? MutableTensorView() : MutableTensorView(sinks.data(), heads),
          found.sinks);
  return compared;
}

}  // namespace fovea::test
