// SPDX-License-Identifier: Apache-2.0
//
// The treatment of subnormal numbers on x86.

#pragma once

#include <optional>

#include "fovea/attention_options.h"
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

namespace fovea::kernels {

#ifdef __x86_64__
/// Flushes subnormal results to zero for the duration of a work item. Each would take over a
/// hundred cycles on Intel's CPUs.
class FlushToZero {
 public:
  FlushToZero() { _mm_setcsr(before_ | 0x8000); }
  ~FlushToZero() { _mm_setcsr(before_); }
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;

 private:
  const unsigned before_ = _mm_getcsr();
};
#endif

/// On x86, flushes subnormal results of scores with biases: keys far from a query may have weights
/// near 2^-126 then, whose products are subnormal.
class FlushWithBiases {
 public:
#ifdef __x86_64__
  explicit FlushWithBiases(const ScoreOptions& score) {
    if (score.alibi || score.relative || score.bias.defined()) flush_.emplace();
  }

 private:
  std::optional<FlushToZero> flush_;
#else
  explicit FlushWithBiases(const ScoreOptions&) {}
#endif
};

}  // namespace fovea::kernels
