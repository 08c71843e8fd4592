// SPDX-License-Identifier: Apache-2.0
//
// Compares the vector functions of fovea/simd_math-inl.h and kernels/simd/log-inl.h with those of
// the C library in double precision, over their whole range, on the active target.

#include "fovea/simd_targets.h"  // before Highway

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "unit/kernels/tile/math_test.cc"
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

#include "fovea/simd_math-inl.h"

#include "kernels/simd/log-inl.h"
#include "kernels/simd/target.h"
#include "support/float_numbers.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::test::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Works in place on a multiple of 16 numbers.
void Exp2OfNonpositive(std::vector<float>& numbers) {
  const hn::CappedTag<float, 16> d;
  for (std::size_t i = 0; i < numbers.size(); i += hn::Lanes(d)) {
    float* const at = numbers.data() + i;
    hn::StoreU(fovea::HWY_NAMESPACE::exp2_of_nonpositive(d, hn::LoadU(d, at)), d, at);
  }
}

/// Computes factor * tanh(x).
void TanhTimes(std::vector<float>& numbers, float factor) {
  const hn::CappedTag<float, 16> d;
  const fovea::HWY_NAMESPACE::simd_math::Tanh<decltype(d)> tanh(d, factor);
  for (std::size_t i = 0; i < numbers.size(); i += hn::Lanes(d)) {
    float* const at = numbers.data() + i;
    hn::StoreU(tanh(hn::LoadU(d, at)), d, at);
  }
}

void Tanh(std::vector<float>& numbers) {
  const hn::CappedTag<float, 16> d;
  for (std::size_t i = 0; i < numbers.size(); i += hn::Lanes(d)) {
    float* const at = numbers.data() + i;
    hn::StoreU(fovea::HWY_NAMESPACE::tanh(d, hn::LoadU(d, at)), d, at);
  }
}

/// Works in place on a multiple of 8 numbers.
void LogOfPositive(std::vector<double>& numbers) {
  const hn::CappedTag<double, 8> d;
  for (std::size_t i = 0; i < numbers.size(); i += hn::Lanes(d)) {
    double* const at = numbers.data() + i;
    hn::StoreU(kernels::HWY_NAMESPACE::log_of_positive(d, hn::LoadU(d, at)), d, at);
  }
}

}  // namespace fovea::test::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::test {
namespace {

HWY_EXPORT(Exp2OfNonpositive);
HWY_EXPORT(LogOfPositive);
HWY_EXPORT(Tanh);
HWY_EXPORT(TanhTimes);

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> exp2_of(std::vector<float> numbers) {
  kernels::choose_target();
  return results_of(
      [](auto& all) {
        HWY_DYNAMIC_DISPATCH(Exp2OfNonpositive)
        (all);
      },
      std::move(numbers));
}
std::vector<float> tanh_of(std::vector<float> numbers) {
  kernels::choose_target();
  return results_of([](auto& all) { HWY_DYNAMIC_DISPATCH(Tanh)(all); }, std::move(numbers));
}

/// Returns the error in ulp of the float32 nearest to `exact`.
double units(float found, double exact) {
  const int exponent = std::max(std::ilogb(exact), -126);
  return std::abs(static_cast<double>(found) - exact) / std::ldexp(1.0, exponent - 23);
}

TEST(AttentionMath, Exp2WithinOneUlpOrTwoWithoutFma) {
  std::vector<float> numbers = numbers_to(126.499F);
  for (float& x : numbers) x = -x;
  const std::vector<float> found = exp2_of(numbers);
  double worst = 0.0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    worst = std::max(worst, units(found[i], std::exp2(static_cast<double>(numbers[i]))));
  }
  RecordProperty("units_in_the_last_place", std::to_string(worst));
  const std::string target = kernels::active_target();
  const bool fused = target != "SSE4" && target != "SCALAR";
  EXPECT_LE(worst, fused ? 1.0 : 2.0);
  EXPECT_GT(worst, 0.4);  // the comparison did run
}

TEST(AttentionMath, Exp2AtRangeEnds) {
  const std::vector<float> found =
      exp2_of({0.0F, -0.0F, -1.0F, -126.0F, -126.5F, -126.6F, -127.0F, -128.0F, -1e10F,
               std::numeric_limits<float>::lowest(), -kInfinity, kNan, -kNan});
  const std::vector<float> expected{1.0F, 1.0F, 0.5F, 0x1p-126F, 0.0F, 0.0F,
                                    0.0F, 0.0F, 0.0F, 0.0F,      0.0F};
  expect_bits(found, expected);
  EXPECT_TRUE(std::isnan(found[11]));
  EXPECT_TRUE(std::isnan(found[12]));
}

TEST(AttentionMath, LogWithinItsRelativeError) {
  constexpr double kError = 2e-12;
  // Normal float32 numbers, float64 numbers near 1, and both sides of sqrt(1/2), where the exponent
  // changes.
  std::vector<double> numbers;
  for (const float x : numbers_to(std::numeric_limits<float>::max())) {
    if (x >= std::numeric_limits<float>::min()) numbers.push_back(static_cast<double>(x));
  }
  for (int step = -1000; step <= 1000; ++step) {
    numbers.push_back(1.0 + step * 0x1p-52);
    numbers.push_back(1.0 + step * 0x1p-12);
    numbers.push_back(std::sqrt(0.5) * (1.0 + step * 0x1p-52));
  }
  numbers.resize((numbers.size() + 7) / 8 * 8, 3.0);
  std::vector<double> found = numbers;
  kernels::choose_target();
  HWY_DYNAMIC_DISPATCH(LogOfPositive)(found);
  double worst = 0.0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const double exact = std::log(numbers[i]);
    if (exact == 0.0) {
      EXPECT_EQ(found[i], 0.0);
    } else {
      worst = std::max(worst, std::abs(found[i] - exact) / std::abs(exact));
    }
  }
  RecordProperty("relative_error", std::to_string(worst * 1e12) + "e-12");
  EXPECT_LE(worst, kError);
  EXPECT_GT(worst, 0.0);
}

TEST(AttentionMath, TanhWithinThreeUlp) {
  const std::vector<float> numbers = numbers_to(100.0F);
  const std::vector<float> found = tanh_of(numbers);
  std::vector<float> negative = numbers;
  for (float& x : negative) x = -x;
  negative = tanh_of(negative);
  double worst = 0.0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    ASSERT_EQ(negative[i], -found[i]) << numbers[i];
    ASSERT_LE(found[i], 1.0F) << numbers[i];
    if (numbers[i] == 0.0F) continue;
    worst = std::max(worst, units(found[i], std::tanh(static_cast<double>(numbers[i]))));
  }
  RecordProperty("units_in_the_last_place", std::to_string(worst));
  EXPECT_LE(worst, 3.0);
  EXPECT_GT(worst, 0.4);
}

TEST(AttentionMath, TanhTimesAFactorWithinFourUlp) {
  kernels::choose_target();
  // Samples around the bounds between polynomials: 0.605 is that of the polynomial near zero, the
  // others are those of the table's intervals.
  std::vector<float> numbers;
  for (const float middle : {0.605F, 0.73F, 0.855F, 1.48F, 1.73F, 3.48F, 7.48F, 9.48F}) {
    for (int i = -20000; i < 20000; ++i) {
      numbers.push_back(middle + static_cast<float>(i) * middle * 6e-8F);
    }
  }
  for (int i = 0; i < 400000; ++i) numbers.push_back(0.1F + static_cast<float>(i) * 4e-6F);
  for (const float factor : {1.0F, 1.3122538F, 1.305269F, 43.28085F, 72.134752F, 1e-3F, 3.3e38F}) {
    const std::vector<float> found = results_of(
        [&](auto& all) {
          HWY_DYNAMIC_DISPATCH(TanhTimes)
          (all, factor);
        },
        numbers);
    double worst = 0.0;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const double exact = static_cast<double>(factor) * std::tanh(static_cast<double>(numbers[i]));
      ASSERT_LE(found[i], factor) << numbers[i];
      worst = std::max(worst, units(found[i], exact));
    }
    RecordProperty("units_times_" + std::to_string(factor), std::to_string(worst));
    EXPECT_LE(worst, 4.0) << factor;
    EXPECT_GT(worst, 0.4) << factor;
  }
}

TEST(AttentionMath, TanhOfANumberDoesNotDependOnItsNeighbours) {
  std::vector<float> numbers;  // vectors with all elements near zero, with none, and with both
  for (int i = 0; i < 16 * 400; ++i) {
    numbers.push_back(static_cast<float>((i % 2 == 0 ? 1 : -1) * (i % 1600)) * 7e-4F);
  }
  for (std::size_t i = 0; i < numbers.size(); i += 97) numbers[i] = i % 2 == 0 ? 50.0F : kNan;
  const std::vector<float> together = tanh_of(numbers);
  for (std::size_t i = 0; i < numbers.size(); i += 5) {
    const std::vector<float> alone = tanh_of(std::vector<float>(16, numbers[i]));
    expect_bits({together[i]}, {alone[0]});
  }
}

TEST(AttentionMath, TanhAtRangeEnds) {
  const std::vector<float> found =
      tanh_of({0.0F, -0.0F, 10.0F, -10.0F, kInfinity, -kInfinity, 3e38F, kNan});
  const std::vector<float> expected{0.0F, -0.0F, 1.0F, -1.0F, 1.0F, -1.0F, 1.0F};
  expect_bits(found, expected);
  EXPECT_TRUE(std::isnan(found[7]));
}

}  // namespace
}  // namespace fovea::test
#endif  // HWY_ONCE
