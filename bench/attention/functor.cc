// SPDX-License-Identifier: Apache-2.0
//
// The custom score functor (functor.h). This file includes only installed headers of Fovea.

#include "fovea/simd_targets.h"  // before Highway

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/attention/functor.cc"
#include <hwy/foreach_target.h>
// Must come after Highway.
#include "fovea/custom_score.h"

#include "bench/attention/functor.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::cli::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Cap {
  CapParameters with;
  template <class D, class V>
  HWY_ATTR V operator()(D d, V score, const fovea::HWY_NAMESPACE::ScoreLanes<D>&) const {
    using T = hn::TFromD<D>;
    const V share = hn::Mul(score, hn::Set(d, static_cast<T>(1 / with.cap)));
    return hn::Mul(hn::Set(d, static_cast<T>(with.cap)), fovea::HWY_NAMESPACE::tanh(d, share));
  }
  template <class D, class V>
  HWY_ATTR V derivative(D d, V score, const fovea::HWY_NAMESPACE::ScoreLanes<D>&) const {
    using T = hn::TFromD<D>;
    const V share = hn::Mul(score, hn::Set(d, static_cast<T>(1 / with.cap)));
    const V tanh = fovea::HWY_NAMESPACE::tanh(d, share);
    return hn::NegMulAdd(tanh, tanh, hn::Set(d, T{1}));
  }
};
FOVEA_SCORE_KERNELS(Cap, CapParameters)

}  // namespace fovea::cli::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::cli {
FOVEA_SCORE_FUNCTION(make_cap, Cap, CapParameters)
}
#endif
