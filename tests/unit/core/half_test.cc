// SPDX-License-Identifier: Apache-2.0
//
// The 16-bit types: round trips of every value, rounding between every two neighbours, and printing
// like NumPy's float16.

#include "fovea/half.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include "fovea/array_format.h"
#include "fovea/tensor.h"

namespace fovea::test {
namespace {

template <class Half>
Half of_bits(std::uint32_t bits) {
  Half half;
  half.bits = static_cast<std::uint16_t>(bits);
  return half;
}

template <class Half>
double number(std::uint32_t bits) {
  return static_cast<double>(static_cast<float>(of_bits<Half>(bits)));
}

template <class Half>
class HalfTest : public testing::Test {};
using Halves = testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(HalfTest, Halves);

TYPED_TEST(HalfTest, EveryValueRoundTrips) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto x = static_cast<float>(of_bits<TypeParam>(bits));
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(x)))) << bits;
      EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(static_cast<double>(x))))) << bits;
    } else {
      ASSERT_EQ(TypeParam(x).bits, bits);
      ASSERT_EQ(TypeParam(static_cast<double>(x)).bits, bits);
    }
  }
}

TYPED_TEST(HalfTest, RoundsToNearestTiesToEven) {
  const std::uint32_t infinity = std::is_same_v<TypeParam, Float16> ? 0x7c00 : 0x7f80;
  for (std::uint32_t bits = 0; bits + 1 < infinity; ++bits) {
    const double low = number<TypeParam>(bits);
    const double high = number<TypeParam>(bits + 1);
    const double middle = (low + high) / 2;
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    for (const double sign : {1.0, -1.0}) {
      const std::uint32_t minus = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(TypeParam(sign * middle).bits, even + minus);
      // float32 cannot represent the doubles nearest to the midpoint, so the conversion must not
      // round to float32 first.
      ASSERT_EQ(TypeParam(sign * std::nextafter(middle, low)).bits, bits + minus);
      ASSERT_EQ(TypeParam(sign * std::nextafter(middle, high)).bits, bits + 1 + minus);
      const auto single = static_cast<float>(sign * middle);
      if (static_cast<double>(single) == sign * middle) {
        ASSERT_EQ(TypeParam(single).bits, even + minus);
        ASSERT_EQ(TypeParam(std::nextafter(single, 0.0F)).bits, bits + minus);
      }
    }
  }
}

TYPED_TEST(HalfTest, ExtremeValues) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(static_cast<float>(TypeParam(kInfinity)), kInfinity);
  EXPECT_EQ(static_cast<float>(TypeParam(-kInfinity)), -kInfinity);
  EXPECT_EQ(static_cast<float>(TypeParam(1e300)), kInfinity);
  EXPECT_EQ(TypeParam(1e-300).bits, 0);
  EXPECT_EQ(TypeParam(-1e-300).bits, 0x8000);
  EXPECT_EQ(TypeParam(-0.0).bits, 0x8000);
}

TEST(Half, Float16Overflows) {
  EXPECT_EQ(Float16(65519.99).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0).bits, 0x7c00);
  EXPECT_EQ(Float16(65519.99F).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0F).bits, 0x7c00);
}

TEST(Half, Tensors) {
  const Tensor source = Tensor::from<double>({4}, {0.1, -2.5, 1e6, 1e-9});
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    EXPECT_EQ(dtype_size(dtype), 2);
    const Tensor half = convert(source, dtype);
    EXPECT_EQ(half.dtype(), dtype);
    EXPECT_EQ(half.value({1}), -2.5);
    EXPECT_NEAR(half.value({0}), 0.1, 0.0004);
    const Tensor again = convert(half.view()[0], DType::kFloat32);
    EXPECT_EQ(again.value({}), half.value({0}));
  }
  EXPECT_EQ(convert(source, DType::kFloat16).value({2}), HUGE_VAL);
  EXPECT_EQ(convert(source, DType::kBFloat16).value({2}), 999424.0);
}

TEST(Half, PrintedLikeNumPy) {
  const auto printed = [](const std::vector<double>& numbers, DType dtype) {
    const auto count = static_cast<std::int64_t>(numbers.size());
    return format_array(convert(Tensor::from<double>({count}, numbers), dtype), {});
  };
  EXPECT_EQ(printed({0.1, 2.5}, DType::kFloat16), "[0.1 2.5]");
  EXPECT_EQ(printed({0.1, 0.3333}, DType::kFloat16), "[0.1    0.3333]");
  EXPECT_EQ(printed({1000, 1}, DType::kFloat16), "[1.e+03 1.e+00]");
  EXPECT_EQ(printed({1001, 0.5}, DType::kFloat16), "[1.001e+03 5.000e-01]");
  EXPECT_EQ(printed({999, 1}, DType::kFloat16), "[999.   1.]");
  EXPECT_EQ(printed({65504, 1}, DType::kFloat16), "[6.55e+04 1.00e+00]");
  EXPECT_EQ(printed({6e-8, 1e-7}, DType::kFloat16), "[6.e-08 1.e-07]");
  EXPECT_EQ(printed({0.001, 1}, DType::kFloat16), "[0.001 1.   ]");
  EXPECT_EQ(printed({0.1, 1000}, DType::kBFloat16), "[1.e-01 1.e+03]");
  EXPECT_EQ(printed({0.1, 100}, DType::kBFloat16), "[  0.1 100. ]");
}

}  // namespace
}  // namespace fovea::test
