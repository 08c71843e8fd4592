// SPDX-License-Identifier: Apache-2.0
//
// Checks which passes flush subnormal results to zero (kernels/simd/flush_to_zero.h).

#pragma once

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/tensor.h"

namespace fovea::test {

/// Checks that a pass returns a result of 2^-130 without biases, and zero with each kind of bias on
/// x86-64. Flushing ends with the call: the caller's arithmetic keeps subnormal numbers.
template <class Result>
void expect_flushed_with_biases(const Result& result_of) {
#ifdef __x86_64__
  constexpr double kFlushed = 0.0;
#else
  constexpr double kFlushed = 0x1p-130;
#endif
  EXPECT_EQ(result_of(ScoreOptions{}), 0x1p-130);
  EXPECT_EQ(result_of({.alibi = Alibi{}}), kFlushed);
  EXPECT_EQ(result_of({.bias = Tensor(DType::kFloat32, {1, 1})}), kFlushed);
  EXPECT_EQ(result_of({.relative = RelativeTable{Tensor(DType::kFloat32, {4, 1})}}), kFlushed);
  volatile float subnormal = 0x1p-129f;
  EXPECT_EQ(subnormal / 2.0f, 0x1p-130f);
}

}  // namespace fovea::test
