// SPDX-License-Identifier: Apache-2.0
//
// The 2^x of the bfloat16 pair kernels, against the C library's in double.

#include "kernels/simd/bf16_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "unit/kernels/tile/math_bf16_test.cc"
#include <hwy/foreach_target.h>
// The include above compiles the rest of this file once per SIMD target.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include "kernels/simd/bf16_target-inl.h"
#include "kernels/simd/target.h"
#include "support/float_numbers.h"

#if FOVEA_BF16_TARGET
#include "kernels/tile/bf16_arithmetic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::test::HWY_NAMESPACE {

/// Works in place on a multiple of 16 numbers.
void exp2_of_pairs(std::vector<float>& numbers) {
  namespace hn = hwy::HWY_NAMESPACE;
  namespace target = fovea::kernels::HWY_NAMESPACE;
  const target::Floats d;
  for (std::size_t i = 0; i < numbers.size(); i += hn::Lanes(d)) {
    float* const at = numbers.data() + i;
    hn::StoreU(target::Bf16Arithmetic::exp2_of_nonpositive(hn::LoadU(d, at)), d, at);
  }
}

}  // namespace fovea::test::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#define FOVEA_HAS_BF16_MATH
#endif

#if HWY_ONCE && defined(FOVEA_HAS_BF16_MATH)
namespace fovea::test {
namespace {

class AttentionMathOfPairs : public ::testing::Test {
 protected:
  void SetUp() override {
    kernels::choose_target();
    if (kernels::bf16_dots_active() != kernels::UnitKind::kHardware)
      GTEST_SKIP() << "no dot products of bfloat16 here";
  }
  static std::vector<float> exp2_of(std::vector<float> numbers) {
    return results_of(N_AVX3_BF16::exp2_of_pairs, std::move(numbers));
  }
};

TEST_F(AttentionMathOfPairs, Exp2WithinRelativeError2e7) {
  std::vector<float> numbers = numbers_to(126.0F);
  for (float& x : numbers) x = -x;
  const std::vector<float> found = exp2_of(numbers);
  double worst = 0.0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const double exact = std::exp2(static_cast<double>(numbers[i]));
    worst = std::max(worst, std::abs(static_cast<double>(found[i]) - exact) / exact);
  }
  EXPECT_LE(worst, 2e-7);
  EXPECT_GT(worst, 2e-8);  // the comparison did run
}

TEST_F(AttentionMathOfPairs, Exp2AtRangeEnds) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> found =
      exp2_of({0.0F, -0.0F, -1.0F, -126.0F, std::nextafter(-126.0F, -kInfinity), -126.5F, -127.0F,
               -149.0F, -1e10F, std::numeric_limits<float>::lowest(), -kInfinity, kNan, -kNan});
  const std::vector<float> expected{1.0F, 1.0F, 0.5F, 0x1p-126F, 0.0F, 0.0F,
                                    0.0F, 0.0F, 0.0F, 0.0F,      0.0F};
  expect_bits(found, expected);
  EXPECT_TRUE(std::isnan(found[11]));
  EXPECT_TRUE(std::isnan(found[12]));
}

}  // namespace
}  // namespace fovea::test
#endif
