// SPDX-License-Identifier: Apache-2.0
//
// The 2^x of the tile unit's kernels, against the C library's in double. It needs AVX-512 only.

#include "kernels/simd/bf16_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "unit/kernels/tile/math_amx_test.cc"
#include <hwy/foreach_target.h>
// The include above compiles the rest of this file once per SIMD target.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include "kernels/simd/amx_target-inl.h"
#include "kernels/simd/flush_to_zero.h"
#include "support/float_numbers.h"

#if FOVEA_AMX_TARGET
#include "kernels/tile/amx_numbers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::test::HWY_NAMESPACE {

/// Works in place on a multiple of 16 numbers.
void exp2_of_all(std::vector<float>& numbers) {
  namespace hn = hwy::HWY_NAMESPACE;
  namespace target = fovea::kernels::HWY_NAMESPACE;
  const kernels::FlushToZero flush;
  const target::Floats d;
  for (std::size_t i = 0; i < numbers.size(); i += hn::Lanes(d)) {
    float* const at = numbers.data() + i;
    hn::StoreU(target::exp2_of(hn::LoadU(d, at)), d, at);
  }
}

}  // namespace fovea::test::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#define FOVEA_HAS_AMX_MATH
#endif

#if HWY_ONCE && defined(FOVEA_HAS_AMX_MATH)
namespace fovea::test {
namespace {

class AttentionMathOfTiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if ((hwy::SupportedTargets() & HWY_AVX3) == 0) GTEST_SKIP() << "no AVX-512 here";
  }
  static std::vector<float> exp2_of(std::vector<float> numbers) {
    return results_of(FOVEA_AMX_NAMESPACE::exp2_of_all, std::move(numbers));
  }
};

TEST_F(AttentionMathOfTiles, Exp2WithinRelativeError2e7) {
  std::vector<float> numbers = numbers_to(std::nextafter(128.0F, 0.0F));
  for (const float x : numbers_to(126.0F)) numbers.push_back(-x);
  // Halfway between two powers of the table, and next to it.
  for (float x = -126.0F + 1.0F / 64; x < 128.0F; x += 1.0F / 32) {
    for (const float near : {-1e9F, x, 1e9F}) numbers.push_back(std::nextafter(x, near));
  }
  const std::vector<float> found = exp2_of(numbers);
  double worst = 0.0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const double exact = std::exp2(static_cast<double>(numbers[i]));
    worst = std::max(worst, std::abs(static_cast<double>(found[i]) - exact) / exact);
  }
  RecordProperty("relative_error_in_1e_9", std::to_string(worst * 1e9));
  EXPECT_LE(worst, 2e-7);
  EXPECT_GT(worst, 2e-8);  // the comparison did run
}

TEST_F(AttentionMathOfTiles, Exp2AtRangeEnds) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kMost = std::numeric_limits<float>::max();
  const std::vector<float> found =
      exp2_of({0.0F,  -0.0F,  -1.0F,  -126.0F,    -126.5F, -127.0F, -149.0F, -1e5F,
               -2e5F, -1e10F, -kMost, -kInfinity, 1.0F,    127.0F,  128.0F,  1e5F,
               2e5F,  1e10F,  kMost,  kInfinity,  kNan,    -kNan});
  const std::vector<float> expected{1.0F,      1.0F,      0.5F,      0x1p-126F, 0.0F,
                                    0.0F,      0.0F,      0.0F,      0.0F,      0.0F,
                                    0.0F,      0.0F,      2.0F,      0x1p127F,  kInfinity,
                                    kInfinity, kInfinity, kInfinity, kInfinity, kInfinity};
  expect_bits(found, expected);
  EXPECT_TRUE(std::isnan(found[20]));
  EXPECT_TRUE(std::isnan(found[21]));
}

}  // namespace
}  // namespace fovea::test
#endif
