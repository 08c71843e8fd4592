// SPDX-License-Identifier: Apache-2.0
//
// The comparator that enforces the 1x rule for the engine (support/exactness.h): results that must
// fail and results that must pass.

#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include "fovea/random.h"
#include "fovea/tensor.h"

#include "support/exactness.h"

namespace fovea::test {
namespace {

constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();
constexpr float kFloatNan = std::numeric_limits<float>::quiet_NaN();

/// An oracle and two plausible float32 results.
class AttentionComparator : public testing::Test {
 protected:
  AttentionComparator() {
    RandomState random(7);
    oracle_ = random.randn({2, 3, 5});
    naive_ = convert(oracle_, DType::kFloat32);
    for (float& x : naive_.span<float>()) x *= 1.0F + 4.0F * static_cast<float>(kRounding);
    found_ = convert(oracle_, DType::kFloat32);
  }

  bool passes() const { return as_exact_as(found_, naive_, oracle_, kAllowance); }
  float& last() { return found_.at<float>({1, 2, 4}); }

  static constexpr double kAllowance = 2 * kRounding;
  Tensor oracle_, naive_, found_;
};

TEST_F(AttentionComparator, PassesRoundedAndNaiveResults) {
  EXPECT_TRUE(passes());
  found_ = naive_;
  EXPECT_TRUE(passes());
}

TEST_F(AttentionComparator, FailsOnNan) {
  last() = kFloatNan;
  EXPECT_FALSE(passes());
  for (float& x : found_.span<float>()) x = kFloatNan;
  EXPECT_FALSE(passes());
}

TEST_F(AttentionComparator, FailsOnInfinity) {
  for (const float infinity : {kFloatInfinity, -kFloatInfinity}) {
    last() = infinity;
    EXPECT_FALSE(passes());
  }
}

TEST_F(AttentionComparator, FailsOnAFlippedSign) {
  last() = -last();
  EXPECT_FALSE(passes());
  for (float& x : found_.span<float>()) x = -x;
  EXPECT_FALSE(passes());
}

TEST_F(AttentionComparator, FailsOnZerosInsteadOfNumbers) {
  found_ = Tensor(DType::kFloat32, found_.shape());
  EXPECT_FALSE(passes());
}

TEST_F(AttentionComparator, FailsOnOneBadElementAnywhere) {
  for (float& x : found_.span<float>()) {
    const float good = x;
    x = good + 1e-5F;
    EXPECT_FALSE(passes());
    x = good;
  }
  EXPECT_TRUE(passes());
}

TEST_F(AttentionComparator, FailsOnAnotherShape) {
  const Tensor good = found_;
  found_ = Tensor(good).reshaped({3, 2, 5});
  EXPECT_FALSE(passes());
  found_ = Tensor(good).reshaped({2, 3, 5, 1});
  EXPECT_FALSE(passes());
  found_ = Tensor(DType::kFloat32, {2, 3, 4});
  EXPECT_FALSE(passes());
  found_ = Tensor(DType::kFloat32, {0, 3, 5});
  EXPECT_FALSE(passes());
  found_ = Tensor();
  EXPECT_FALSE(passes());
}

TEST_F(AttentionComparator, FailsJustBeyondTheBound) {
  const Deviation of_naive = deviation(naive_, oracle_);
  Tensor almost = oracle_;  // float64, to get arbitrarily close to the bound
  double& x = almost.at<double>({0, 0, 0});
  x += of_naive.largest + kAllowance * 0.999;
  EXPECT_TRUE(as_exact_as(almost, naive_, oracle_, kAllowance));
  x += kAllowance * 0.002;
  EXPECT_FALSE(as_exact_as(almost, naive_, oracle_, kAllowance));
}

TEST_F(AttentionComparator, NamesTheElementAndTheNumbers) {
  found_.at<float>({1, 0, 3}) = 99.0F;
  const testing::AssertionResult result = as_exact_as(found_, naive_, oracle_, kAllowance);
  EXPECT_NE(std::string(result.message()).find("found 99 at [1, 0, 3], the oracle has "),
            std::string::npos)
      << result.message();
}

TEST_F(AttentionComparator, NanAndInfinityMatchTheirOwnKindOnly) {
  const float kinds[] = {kFloatNan, kFloatInfinity, -kFloatInfinity, 1.0F};
  for (const float expected : kinds) {
    oracle_.at<double>({1, 2, 4}) = static_cast<double>(expected);
    naive_.at<float>({1, 2, 4}) = expected;
    for (const float found : kinds) {
      last() = found;
      const bool same = found == expected || (std::isnan(found) && std::isnan(expected));
      EXPECT_EQ(passes(), same) << found << " for " << expected;
    }
  }
}

TEST_F(AttentionComparator, NonfiniteNaiveResultsAllowNothing) {
  for (const float broken : {kFloatNan, kFloatInfinity}) {
    naive_.at<float>({0, 1, 2}) = broken;
    EXPECT_FALSE(passes());
    found_.at<float>({0, 1, 2}) = broken;
    EXPECT_FALSE(passes());
  }
}

TEST_F(AttentionComparator, InvalidAllowancesAllowNothing) {
  for (const double allowance : {-1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_FALSE(as_exact_as(found_, naive_, oracle_, allowance));
  }
}

TEST_F(AttentionComparator, SameBitsComparesEveryElementAndTheSignOfZero) {
  const Tensor copy = found_;
  EXPECT_TRUE(same_bits(found_, copy));
  last() = std::nextafter(last(), kFloatInfinity);
  EXPECT_FALSE(same_bits(found_, copy));
  EXPECT_FALSE(same_bits(found_, convert(copy, DType::kFloat64)));
  EXPECT_FALSE(same_bits(found_, Tensor(copy).reshaped({30})));
  EXPECT_FALSE(same_bits(Tensor(), Tensor()));
  const Tensor zero = Tensor::from<float>({1}, {0.0F});
  EXPECT_FALSE(same_bits(zero, Tensor::from<float>({1}, {-0.0F})));
  EXPECT_TRUE(
      same_bits(Tensor::from<float>({1}, {kFloatNan}), Tensor::from<float>({1}, {kFloatNan})));
}

}  // namespace
}  // namespace fovea::test
