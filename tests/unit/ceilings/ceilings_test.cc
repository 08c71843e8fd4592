// SPDX-License-Identifier: Apache-2.0
//
// Tests of ceilings/ceilings.h: rates are plausible and measured in about the requested time.
// Whether they are this machine's ceilings can only be judged against other programs.

#include "ceilings/ceilings.h"

#include <chrono>
#include <cstddef>
#include <string>

#include <gtest/gtest.h>

#include "kernels/simd/target.h"
#include "support/message_of.h"

namespace fovea::kernels {
namespace {

// Far below and far above the rates of any machine, also under sanitizers.
constexpr double kMin = 1e-3;
constexpr double kMax = 1e7;

TEST(Ceilings, PlausibleRatesForAnyThreadCount) {
  for (const int threads : {1, 2, 3}) {
    const CeilingOptions options = {.threads = threads, .seconds = 0.02};
    for (const double rate : {fma_ceiling_gflops(options), ReadCeiling().gb_per_s(options)}) {
      EXPECT_GT(rate, kMin) << threads;
      EXPECT_LT(rate, kMax) << threads;
    }
  }
}

TEST(Ceilings, RepeatedReads) {
  ReadCeiling reading;
  for (const int threads : {1, 1, 2}) {
    const double rate = reading.gb_per_s({.threads = threads, .seconds = 0.01});
    EXPECT_GT(rate, kMin) << threads;
    EXPECT_LT(rate, kMax) << threads;
  }
}

TEST(Ceilings, ReadsOfAnySize) {
  ReadCeiling reading;
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{300'000}, std::size_t{5'000'001}, std::size_t{1} << 40}) {
    for (const int threads : {1, 3}) {
      const double rate = reading.gb_per_s({.threads = threads, .seconds = 0.01}, bytes);
      EXPECT_GT(rate, kMin) << bytes << ", " << threads;
      EXPECT_LT(rate, kMax) << bytes << ", " << threads;
    }
  }
}

TEST(Ceilings, ProductsOfEachType) {
  const CeilingOptions options = {.seconds = 0.02};
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const double rate = product_ceiling_gflops(dtype, options);
    EXPECT_GT(rate, kMin);
    EXPECT_LT(rate, kMax);
  }
}

TEST(Ceilings, Bfloat16IfSupported) {
  const double rate = bf16_ceiling_gflops({.seconds = 0.02});
  if (bf16_dots_active() == UnitKind::kHardware || tile_unit_active() == UnitKind::kHardware) {
    EXPECT_GT(rate, kMin);
    EXPECT_LT(rate, kMax);
  } else {
    EXPECT_EQ(rate, 0.0);
  }
}

TEST(Ceilings, RunForTheRequestedTime) {
  const auto start = std::chrono::steady_clock::now();
  fma_ceiling_gflops({.seconds = 0.2});
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_GE(elapsed.count(), 0.2);
}

TEST(Ceilings, RejectZeroThreads) {
  const std::string expected = "threads: expected at least 1, got 0";
  EXPECT_EQ(test::message_of([] { fma_ceiling_gflops({.threads = 0}); }), expected);
  EXPECT_EQ(test::message_of([] { ReadCeiling().gb_per_s({.threads = 0}); }), expected);
}

}  // namespace
}  // namespace fovea::kernels
