// SPDX-License-Identifier: Apache-2.0
//
// The lens of the backward pass (fovea/attention_backward.h): the effect of each key's weights on
// the loss, summed over the queries. The sums are accumulated in scratch memory, for one block of
// keys and one query head at a time, so that every sum has a fixed order and threads share no sums.
//
// Queries are laid out across lanes, so each key has a vector of sums, whose lanes are added up
// when the head is done.

#if defined(FOVEA_KERNELS_BACKWARD_RELEVANCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_BACKWARD_RELEVANCE_INL_H_
#undef FOVEA_KERNELS_BACKWARD_RELEVANCE_INL_H_
#else
#define FOVEA_KERNELS_BACKWARD_RELEVANCE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/backward/backward.h"
#include "kernels/backward/backward_scratch.h"
#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Floats per key: a vector of sums, and a vector of sums of absolute values.
inline constexpr std::int64_t kRelevanceSums = 2 * kLanes;

class KeyRelevance {
 public:
  KeyRelevance(const BackwardSetup& setup, const BackwardScratch& scratch)
      : setup_(setup), sums_(scratch.relevance) {}

  bool any() const { return setup_.relevance; }

  void clear() {
    if (any()) std::fill_n(sums_, setup_.forward.block_keys * kRelevanceSums, 0.0f);
  }

  /// Adds the relevance of the block's key `key` for one vector of queries.
  HWY_INLINE void add(Vector relevance, std::int64_t key) {
    const Floats d;
    float* const sum = sums_ + key * kRelevanceSums;
    float* const magnitude = sum + kLanes;
    hn::Store(hn::Add(hn::Load(d, sum), relevance), d, sum);
    hn::Store(hn::Add(hn::Load(d, magnitude), hn::Abs(relevance)), d, magnitude);
  }

  /// Writes the sums of the block's `keys` keys to the outputs of the head.
  void write(const BackwardHead& head, std::int64_t first_key, std::int64_t keys) const {
    write(head.relevance, first_key, keys, sums_);
    write(head.magnitude, first_key, keys, sums_ + kLanes);
  }

 private:
  static void write(float* to, std::int64_t first_key, std::int64_t keys, const float* sums) {
    if (to == nullptr) return;
    const Floats d;
    for (std::int64_t k = 0; k < keys; ++k) {
      to[first_key + k] = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, sums + k * kRelevanceSums)));
    }
  }

  const BackwardSetup& setup_;
  float* const sums_;  // [block_keys][2][lanes]
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_BACKWARD_RELEVANCE_INL_H_
