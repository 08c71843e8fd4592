// SPDX-License-Identifier: Apache-2.0
//
// Minimum, maximum, mean and counts compared with plain loops.

#include "files/summary.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/half.h"
#include "fovea/random.h"

#include "support/limits.h"

namespace fovea::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Computes the summary in a plain loop over the elements.
Summary plain(const TensorView& tensor) {
  Summary summary;
  double sum = 0.0;
  summary.least = kInfinity;
  summary.greatest = -kInfinity;
  for_each_index(tensor.shape(), [&](const Index& index) {
    const double x = tensor.value(index);
    ++summary.count;
    if (std::isnan(x)) ++summary.nans;
    if (std::isinf(x)) ++summary.infinities;
    if (!std::isfinite(x)) return;
    sum += x;
    summary.least = std::min(summary.least, x);
    summary.greatest = std::max(summary.greatest, x);
  });
  summary.mean = sum / static_cast<double>(summary.finite());
  return summary;
}

void expect_same(const Summary& got, const Summary& expected) {
  EXPECT_EQ(got.count, expected.count);
  EXPECT_EQ(got.nans, expected.nans);
  EXPECT_EQ(got.infinities, expected.infinities);
  EXPECT_EQ(got.least, expected.least);
  EXPECT_EQ(got.greatest, expected.greatest);
  EXPECT_NEAR(got.mean, expected.mean, 1e-12 * (expected.greatest - expected.least));
}

TEST(Summary, MatchesAPlainLoop) {
  RandomState random(1);
  for (const std::int64_t count : {1, 2, 15, 16, 17, 100, 4095, 4096, 4097, 50000}) {
    Tensor values(DType::kFloat64, {count});
    for (double& x : values.span<double>()) x = random.randn() * 1000.0;
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                              DType::kInt64, DType::kBool}) {
      const Tensor tensor = convert(values, dtype);
      SCOPED_TRACE(testing::Message() << count << " " << dtype_name(dtype));
      expect_same(summarize(tensor), plain(tensor));
    }
    // A few NaNs and infinities, one of them in the last position.
    for (std::int64_t i = count - 1; i >= 0; i -= 7) {
      values.at<double>({i}) = i % 3 == 0 ? kNaN : i % 3 == 1 ? kInfinity : -kInfinity;
    }
    if (count < 15) continue;
    for (const DType dtype :
         {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
      const Tensor tensor = convert(values, dtype);
      SCOPED_TRACE(testing::Message() << count << " " << dtype_name(dtype));
      expect_same(summarize(tensor), plain(tensor));
    }
  }
}

TEST(Summary, Every16BitValue) {
  Tensor halves(DType::kFloat16, {0x10000});
  Tensor brains(DType::kBFloat16, {0x10000});
  for (std::size_t bits = 0; bits < 0x10000; ++bits) {
    halves.span<Float16>()[bits].bits = static_cast<std::uint16_t>(bits);
    brains.span<BFloat16>()[bits].bits = static_cast<std::uint16_t>(bits);
  }
  expect_same(summarize(halves), plain(halves));
  expect_same(summarize(brains), plain(brains));
  for (std::int64_t i = 0; i < 0x10000; ++i) {
    const Summary one = summarize(halves.view()[i]);
    const double x = halves.value({i});
    if (std::isfinite(x)) {
      ASSERT_EQ(one.least, x);
      ASSERT_EQ(one.mean, x);
    } else {
      ASSERT_EQ(one.nans, std::isnan(x) ? 1 : 0);
      ASSERT_EQ(one.infinities, std::isnan(x) ? 0 : 1);
    }
  }
}

TEST(Summary, NoFiniteValues) {
  const Summary nothing = summarize(Tensor(DType::kFloat32, {0, 3}));
  EXPECT_EQ(nothing.count, 0);
  EXPECT_EQ(nothing.finite(), 0);
  const Summary nans = summarize(Tensor::from<double>({3}, {kNaN, kInfinity, -kInfinity}));
  EXPECT_EQ(nans.count, 3);
  EXPECT_EQ(nans.nans, 1);
  EXPECT_EQ(nans.infinities, 2);
  EXPECT_EQ(nans.mean, 0.0);
}

TEST(Summary, IntegersAreExact) {
  const std::vector<std::int64_t> ends = {INT64_MIN, INT64_MAX, INT64_MAX - 1, -5};
  const Summary summary = summarize(Tensor::from<std::int64_t>({4}, ends));
  EXPECT_EQ(summary.least_integer, INT64_MIN);
  EXPECT_EQ(summary.greatest_integer, INT64_MAX);
  EXPECT_EQ(summary.mean, 0x1p63 / 4);
  const Summary large = summarize(Tensor::from<std::int64_t>({2}, {INT64_MAX, INT64_MAX}));
  EXPECT_EQ(large.mean, 0x1p63);
}

TEST(Summary, SumsThatOverflowFloat64) {
  const Summary summary = summarize(Tensor::from<double>({4}, {1e308, 1.5e308, 1e308, kNaN}));
  EXPECT_NEAR(summary.mean, (1e308 / 3 + 1.5e308 / 3 + 1e308 / 3), 1e295);
  EXPECT_EQ(summary.greatest, 1.5e308);
}

TEST(Summary, AnyStrides) {
  Tensor source(DType::kFloat32, {7, 11, 13});
  float next = 0.0F;
  for (float& x : source.span<float>()) x = next++;
  const TensorView view = source.view();
  for (const TensorView& strided :
       {view.transposed(0, 2), view.transposed(1, 2), view.transposed(0, 1)[2],
        TensorView(view.data(), DType::kFloat32, {5, 100}, {0, 2})}) {
    expect_same(summarize(strided), plain(strided));
  }
}

TEST(Summary, ReportsProgress) {
  const Tensor tensor(DType::kBool, {std::int64_t{40'000'000}});
  double last = 0.0;
  int calls = 0;
  summarize(tensor, [&](double share) {
    EXPECT_GT(share, last);
    EXPECT_LE(share, 1.0);
    last = share;
    ++calls;
  });
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace fovea::test
