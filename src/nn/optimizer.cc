// SPDX-License-Identifier: Apache-2.0
//
// Adam, gradient clipping and learning rate schedules (fovea/nn/optimizer.h).

#include "fovea/nn/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>
#include <vector>

#include "core/fail.h"
#include "nn/passes.h"
#include "nn/rows.h"

namespace fovea::nn {
namespace {

constexpr std::int64_t kGrain = 16 * 1024;

void check_share(std::string_view name, double number) {
  if (!(number >= 0.0 && number < 1.0)) {
    fail("{}: expected a number in [0, 1), got {}", name, number);
  }
}

void check_not_negative(std::string_view name, double number) {
  if (!(number >= 0.0 && std::isfinite(number))) {
    fail("{}: expected a number from 0 on, got {}", name, number);
  }
}

}  // namespace

Adam::Adam(Parameters& parameters, const AdamOptions& options) : options_(options) {
  check_share("beta1", options.beta1);
  check_share("beta2", options.beta2);
  check_not_negative("epsilon", options.epsilon);
  check_not_negative("weight_decay", options.weight_decay);
  for (Parameter& parameter : parameters) {
    const Shape& shape = parameter.value.shape();
    moments_.push_back(
        {&parameter, Tensor(parameters.dtype(), shape), Tensor(parameters.dtype(), shape)});
  }
}

void Adam::step(double learning_rate) {
  check_not_negative("learning_rate", learning_rate);
  ++steps_;
  // Bias correction: the moving averages start at 0, which makes them too small by these factors
  // (Kingma and Ba 2015, sec. 3).
  const auto made = static_cast<double>(steps_);
  const double mean_share = 1.0 - std::pow(options_.beta1, made);
  const double square_share = 1.0 - std::pow(options_.beta2, made);
  for (Moments& of : moments_) {
    with_real(of.mean.dtype(), [&](auto zero) {
      using Real = decltype(zero);
      const passes::AdamStep<Real> step{
          .beta1 = static_cast<Real>(options_.beta1),
          .beta2 = static_cast<Real>(options_.beta2),
          .rate = static_cast<Real>(learning_rate / mean_share),
          .root_scale = static_cast<Real>(1.0 / std::sqrt(square_share)),
          .epsilon = static_cast<Real>(options_.epsilon),
          .keep = static_cast<Real>(1.0 - learning_rate * options_.weight_decay)};
      Real* const value = of.parameter->value.span<Real>().data();
      const Real* const gradient = of.parameter->gradient.span<Real>().data();
      Real* const mean = of.mean.span<Real>().data();
      Real* const square = of.square.span<Real>().data();
      const auto& passes = passes::table<Real>();
      for_each_range(of.mean.size(), kGrain, [=, &passes](std::int64_t begin, std::int64_t end) {
        passes.adam(step, value + begin, gradient + begin, mean + begin, square + begin,
                    end - begin);
      });
    });
  }
}

double gradient_norm(const Parameters& parameters) {
  double sum = 0.0;
  std::vector<double> sums;
  for (const Parameter& parameter : parameters) {
    with_real(parameters.dtype(), [&](auto zero) {
      using Real = decltype(zero);
      const Real* const gradient = parameter.gradient.span<Real>().data();
      const auto& passes = passes::table<Real>();
      const std::int64_t count = parameter.gradient.size();
      sums.assign(static_cast<std::size_t>((count + kGrain - 1) / kGrain), 0.0);
      for_each_range(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
        sums[static_cast<std::size_t>(begin / kGrain)] =
            passes.sum_of_squares(gradient + begin, end - begin);
      });
    });
    for (const double part : sums) sum += part;
  }
  return std::sqrt(sum);
}

double clip_gradients(Parameters& parameters, double largest) {
  if (!(largest > 0.0)) {
    fail("largest: expected a norm above 0, got {}", largest);
  }
  const double norm = gradient_norm(parameters);
  if (!std::isfinite(norm) || norm <= largest) return norm;
  for (Parameter& parameter : parameters) {
    with_real(parameters.dtype(), [&](auto zero) {
      using Real = decltype(zero);
      const auto factor = static_cast<Real>(largest / (norm + 1e-6));  // as in PyTorch
      Real* const gradient = parameter.gradient.span<Real>().data();
      const auto& passes = passes::table<Real>();
      for_each_range(parameter.gradient.size(), kGrain,
                     [=, &passes](std::int64_t begin, std::int64_t end) {
                       passes.scale(gradient + begin, factor, end - begin);
                     });
    });
  }
  return norm;
}

void Adam::set_steps(std::int64_t steps) {
  if (steps < 0) fail("steps: expected 0 or more, got {}", steps);
  steps_ = steps;
}

double Schedule::rate(std::int64_t steps) const {
  if (!(peak >= 0.0 && std::isfinite(peak)))
    fail("peak: expected a number of 0 or more, got {}", peak);
  if (warmup < 0) fail("warmup: expected 0 steps or more, got {}", warmup);
  if (kind == Kind::kCosine && total <= 0) {
    fail("total: expected 1 step or more for a cosine, got {}", total);
  }
  if (steps < 0) fail("steps: expected 0 or more, got {}", steps);
  const auto step = static_cast<double>(steps) + 1.0;
  const auto warm = static_cast<double>(std::max<std::int64_t>(warmup, 1));
  if (step < warm) return peak * step / warm;
  switch (kind) {
    case Kind::kConstant:
      return peak;
    case Kind::kInverseRoot:
      return peak * std::sqrt(warm / step);
    case Kind::kCosine: {
      const double length = std::max(1.0, static_cast<double>(total) - warm);
      const double share = std::min(1.0, (step - warm) / length);
      return peak * 0.5 * (1.0 + std::cos(std::numbers::pi * share));
    }
  }
  return peak;
}

}  // namespace fovea::nn
