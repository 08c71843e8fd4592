// SPDX-License-Identifier: Apache-2.0
//
// A custom score function that runs inside the engine. It computes cap * tanh(score / cap), which
// Fovea also has built in as `softcap`, so that the two can be compared. Highway compiles this file
// once per SIMD target: it includes the file by the name below, and the program must link to
// Highway.

#include "fovea/simd_targets.h"  // before Highway

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "custom_score.cc"
#include <hwy/foreach_target.h>
// Must come after Highway.
#include "fovea/custom_score.h"

#ifndef CAP_PARAMETERS  // defined once, not once per target
#define CAP_PARAMETERS
struct CapParameters {
  double cap;
};
#endif

HWY_BEFORE_NAMESPACE();
namespace capped::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Cap {
  CapParameters with;
  template <class D, class V>  // D: a Highway tag for float or double; V: its vector type
  HWY_ATTR V operator()(D d, V score, const fovea::HWY_NAMESPACE::ScoreLanes<D>& /*at*/) const {
    using T = hn::TFromD<D>;
    const V share = hn::Mul(score, hn::Set(d, static_cast<T>(1 / with.cap)));
    return hn::Mul(hn::Set(d, static_cast<T>(with.cap)), fovea::HWY_NAMESPACE::tanh(d, share));
  }
  template <class D, class V>  // derivative with respect to the score, for gradients
  HWY_ATTR V derivative(D d, V score, const fovea::HWY_NAMESPACE::ScoreLanes<D>& /*at*/) const {
    using T = hn::TFromD<D>;
    const V share = hn::Mul(score, hn::Set(d, static_cast<T>(1 / with.cap)));
    const V tanh = fovea::HWY_NAMESPACE::tanh(d, share);
    return hn::NegMulAdd(tanh, tanh, hn::Set(d, T{1}));
  }
};
FOVEA_SCORE_KERNELS(Cap, CapParameters)

}  // namespace capped::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>

#include "fovea/attention.h"
#include "fovea/random.h"

namespace capped {
FOVEA_SCORE_FUNCTION(make_cap, Cap, CapParameters)
}

int main() {
  fovea::RandomState random(42);
  const auto numbers = [&] {
    return fovea::convert(random.randn({1, 2, 500, 64}), fovea::DType::kFloat32);
  };
  const fovea::Tensor query = numbers(), key = numbers(), value = numbers();
  try {
    const auto attend = [&](const fovea::ScoreOptions& score) {
      fovea::Tensor context(fovea::DType::kFloat32, query.shape());
      fovea::attention_forward(query, key, value, {.mask = fovea::causal(), .score = score},
                               {.context = context});
      return context;
    };
    const fovea::Tensor ours = attend({.custom = capped::make_cap({.cap = 2})});
    const fovea::Tensor built_in = attend({.softcap = 2});
    const fovea::Tensor uncapped = attend({});

    const auto difference = [&](const fovea::Tensor& other) {
      double largest = 0.0;
      for (std::size_t i = 0; i < ours.span<float>().size(); ++i) {
        const double apart = ours.span<float>()[i] - other.span<float>()[i];
        largest = std::max(largest, std::abs(apart));
      }
      return largest;
    };
    std::printf("%s 0.00001 of softcap = 2\n",
                difference(built_in) <= 1e-5 ? "within" : "NOT within");
    std::printf("%.2f from scores without a cap\n", difference(uncapped));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

#endif  // HWY_ONCE
