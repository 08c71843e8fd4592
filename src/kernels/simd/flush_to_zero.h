// SPDX-License-Identifier: Apache-2.0
//
// The treatment of subnormal numbers on x86.

#pragma once

#include <xmmintrin.h>

namespace fovea::kernels {

/// Flushes subnormal results to zero for the duration of a work item. Weights below 2^-126 would
/// take over a hundred cycles each.
class FlushToZero {
 public:
  FlushToZero() { _mm_setcsr(before_ | 0x8000); }
  ~FlushToZero() { _mm_setcsr(before_); }
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;

 private:
  const unsigned before_ = _mm_getcsr();
};

}  // namespace fovea::kernels
