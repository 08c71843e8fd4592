// SPDX-License-Identifier: Apache-2.0
//
// A program outside Fovea with a custom score function, written as fovea/custom_score.h describes:
// a bias proportional to the distance, which equals Fovea's ALiBi. Prints "ok" if results and
// gradients of the two agree and the program was compiled for the same targets as Fovea.

#ifndef WITHOUT_TARGETS          // consumer_test.py checks the compiler error
#include "fovea/simd_targets.h"  // before Highway
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "custom_score.cc"
#include <hwy/foreach_target.h>
// Must come after Highway.
#include "fovea/custom_score.h"

#ifndef DISTANCE_PARAMETERS  // once, not once per target
#define DISTANCE_PARAMETERS
struct DistanceParameters {
  double slope;
};
#endif

HWY_BEFORE_NAMESPACE();
namespace consumer::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Distance {
  DistanceParameters with;
  template <class D, class V>
  HWY_ATTR V operator()(D d, V score, const fovea::HWY_NAMESPACE::ScoreLanes<D>& at) const {
    const V slope = hn::Set(d, static_cast<hn::TFromD<D>>(with.slope));
    const V distance = hn::Abs(hn::ConvertTo(d, at.distances()));
    return hn::NegMulAdd(slope, distance, score);
  }
#ifndef WITHOUT_DERIVATIVE  // consumer_test.py checks the compiler error
  template <class D, class V>
  HWY_ATTR V derivative(D d, V, const fovea::HWY_NAMESPACE::ScoreLanes<D>&) const {
    return hn::Set(d, hn::TFromD<D>{1});
  }
#endif
};
FOVEA_SCORE_KERNELS(Distance, DistanceParameters)

}  // namespace consumer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "fovea/attention.h"
#include "fovea/info.h"
#include "fovea/random.h"
#include "fovea/reference.h"

namespace consumer {
FOVEA_SCORE_FUNCTION(make_distance, Distance, DistanceParameters)
}

// Targets that Fovea is not compiled for are disabled here too.
static_assert((HWY_TARGETS & FOVEA_DISABLED_TARGETS) == 0);
static_assert((HWY_DISABLED_TARGETS & HWY_SVE) != 0 && (HWY_DISABLED_TARGETS & HWY_SVE2) != 0);
static_assert((HWY_DISABLED_TARGETS & HWY_SSSE3) != 0);
#ifdef HWY_SSE2
static_assert((HWY_DISABLED_TARGETS & HWY_SSE2) != 0);
#endif

/// Returns whether this program has the same targets as Fovea on this CPU.
bool has_the_same_targets() {
  std::vector<std::string> ours, theirs;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const bool fallback = (target & (HWY_EMU128 | HWY_SCALAR)) != 0;
    ours.push_back(fallback ? "SCALAR" : hwy::TargetName(target));
  }
  for (const std::string& target : fovea::build_info().targets) {
    // Highway's name for these is AVX3.
    if (target != "AMX" && target != "AVX3_BF16") theirs.push_back(target);
  }
  return ours == theirs;
}

int main() {
  if (!has_the_same_targets()) {
    std::puts("other targets than Fovea's");
    return 1;
  }
  fovea::RandomState random(42);
  const auto numbers = [&] {
    return fovea::convert(random.randn({1, 1, 50, 8}), fovea::DType::kFloat32);
  };
  const fovea::Tensor query = numbers(), key = numbers(), value = numbers();
  const fovea::AttentionOptions built_in = {.score = {.alibi = fovea::Alibi{{0.25}}}};
  const fovea::AttentionOptions ours = {
      .score = {.custom = consumer::make_distance({.slope = 0.25})}};

  // The engine calls the function for tiles of scores, the reference for single scores.
  fovea::Tensor lse(fovea::DType::kFloat32, {1, 1, 50});
  fovea::attention_forward(query, key, value, ours, {.lse = lse});
  const auto expected = fovea::reference::attention_steps({query, key, value}, built_in);
  const auto by_reference = fovea::reference::attention_steps({query, key, value}, ours);
  for (int i = 0; i < 50; ++i) {
    const double exact = expected.lse.value({0, 0, i});
    if (!(std::abs(lse.value({0, 0, i}) - exact) < 1e-5)) return 1;
    if (!(std::abs(by_reference.lse.value({0, 0, i}) - exact) < 1e-12)) return 1;
  }

  // The derivative is 1 for both, because a bias is only added.
  const auto gradient_of_query = [&](const fovea::AttentionOptions& options) {
    return fovea::reference::attention_gradients({query, key, value}, {.context = value}, options)
        .query;
  };
  const fovea::Tensor found = gradient_of_query(ours), right = gradient_of_query(built_in);
  for (int i = 0; i < 50; ++i) {
    const fovea::Index at{0, 0, i, i % 8};
    if (!(std::abs(found.value(at) - right.value(at)) < 1e-12)) return 1;
  }
  std::puts("ok");
}

#endif  // HWY_ONCE
