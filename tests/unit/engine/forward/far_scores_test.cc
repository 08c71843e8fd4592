// SPDX-License-Identifier: Apache-2.0
//
// Scores and values at the limits of passes that compute weights relative to the maximum of a row's
// first keys, or products of float32 as products of bfloat16: maxima that rise late and far, very
// large and very small numbers, single ones of them beside usual ones. Every target computes them
// as exactly as a naive program.

#include <cmath>
#include <cstdint>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/attention_options.h"
#include "fovea/mask.h"

#include "support/forward.h"
#include "support/limits.h"
#include "support/random_problem.h"
#include "support/storage.h"

namespace fovea::test {
namespace {

constexpr ProblemShape kFarShape{1, 2, 1, 110, 400};
constexpr std::int64_t kFarDim = 32;

RandomProblem far_problem() { return stored_problem(kFarShape, kFarDim, 40); }

void scale(const MutableTensorView& tensor, double factor) {
  change_all(tensor, [&](double x) { return x * factor; });
}

TEST(AttentionFarScores, MaximaRiseLateAndFar) {
  // The products with keys from `first` on are `factor` times as large, so most rows have a far
  // higher maximum there, and others a far lower one.
  for (const double factor : {8.0, 100.0, 1e4}) {
    for (const std::int64_t first : {1, 31, 64, 65, 200, 399}) {
      SCOPED_TRACE(testing::Message() << factor << " from key " << first);
      RandomProblem p = far_problem();
      for (std::int64_t key = first; key < kFarShape.kv_len; ++key) {
        scale(p.key.view()[0][0][key], factor);
      }
      expect_exact(p.inputs(), {}, some_rows(kFarShape, 12));
      expect_exact(p.inputs(), {.mask = causal()}, some_rows(kFarShape, 12));
    }
  }
}

TEST(AttentionFarScores, GrowFromBlockToBlock) {
  // Each key's product is larger than the last one's, so each block raises the maximum.
  RandomProblem p = far_problem();
  for (std::int64_t key = 0; key < kFarShape.kv_len; ++key) {
    change_all(p.key.view()[0][0][key], [&](double) { return 0.05 * static_cast<double>(key); });
  }
  change_all(p.query.view(), [](double x) { return std::abs(x); });
  expect_exact(p.inputs(), {}, some_rows(kFarShape, 12));
  expect_exact(p.inputs(), {.mask = window(90, 10)}, some_rows(kFarShape, 12));
}

/// Returns whether a row of two contexts has the same bits.
bool same_row(const Tensor& a, const Tensor& b, std::int64_t head, std::int64_t row) {
  for (std::int64_t c = 0; c < a.extent(3); ++c) {
    if (a.value({0, head, row, c}) != b.value({0, head, row, c})) return false;
  }
  return true;
}

TEST(AttentionFarScores, RowsThatDoNotSeeAFarNumberKeepTheirBits) {
  constexpr std::int64_t kKey = 300, kQuery = 70;
  const RandomProblem clean = far_problem();
  for (const Mask& mask : {causal(), window(30, 5), key_lengths({300})}) {
    const AttentionOptions options{.mask = mask};
    const Tensor expected = forward(clean.inputs(), options).context;
    for (const double number : {kNan, kInfinity, 1e30, 1e-35}) {
      SCOPED_TRACE(testing::Message() << number << ", " << mask.to_string());
      RandomProblem p = far_problem();
      for (Tensor* tensor : {&p.key, &p.value}) {
        change_all(tensor->view()[0][0][kKey], [&](double) { return number; });
      }
      change_all(p.query.view()[0][1][kQuery], [&](double) { return number; });
      const Tensor found = forward(p.inputs(), options).context;
      for (std::int64_t row = 0; row < kFarShape.q_len; ++row) {
        const ScorePosition at{
            .query = row, .key = kKey, .offset = kFarShape.kv_len - kFarShape.q_len};
        const bool sees = mask.visible(at);
        for (const std::int64_t head : {0, 1}) {
          if (sees || (head == 1 && row == kQuery)) continue;
          EXPECT_TRUE(same_row(found, expected, head, row)) << head << ", " << row;
        }
      }
    }
  }
}

TEST(AttentionFarScores, OtherRowsKeepTheirBitsWhenOneRises) {
  RandomProblem p = far_problem();
  const Forward before = forward(p.inputs());
  scale(p.query.view()[0][1][40], 1e3);
  const Forward after = forward(p.inputs());
  for (std::int64_t row = 0; row < kFarShape.q_len; ++row) {
    for (std::int64_t c = 0; row != 40 && c < 40; ++c) {
      ASSERT_EQ(after.context.value({0, 1, row, c}), before.context.value({0, 1, row, c})) << row;
    }
  }
}

// Only float32 has room for them, and only its products are split.
class AttentionMagnitudes : public testing::Test {
 protected:
  void SetUp() override {
    if (storage() != DType::kFloat32) GTEST_SKIP() << "for float32";
  }
};

TEST_F(AttentionMagnitudes, QueriesAndKeysOfOppositeSizes) {
  for (const int exponent : {-120, -100, -90, 60, 90, 110}) {
    SCOPED_TRACE(exponent);
    RandomProblem p = far_problem();
    scale(p.query.view(), std::ldexp(1.0, exponent));
    scale(p.key.view(), std::ldexp(1.0, -exponent));
    expect_exact(p.inputs(), {}, some_rows(kFarShape, 12));
  }
}

TEST_F(AttentionMagnitudes, ValuesOfEverySize) {
  for (const int exponent : {-118, -100, -80, 50, 57, 58, 90, 118}) {
    SCOPED_TRACE(exponent);
    RandomProblem p = far_problem();
    scale(p.value.view(), std::ldexp(1.0, exponent));
    expect_exact(p.inputs(), {}, some_rows(kFarShape, 12));
    expect_exact(p.inputs(), {.mask = causal()}, some_rows(kFarShape, 12));
  }
}

TEST_F(AttentionMagnitudes, OneTinyOrHugeNumber) {
  for (const double number : {1e-44, 1e-38, 1e-31, 1e20, 3e38}) {
    for (const std::int64_t key : {0, 40, 399}) {
      SCOPED_TRACE(testing::Message() << number << " at key " << key);
      RandomProblem p = far_problem();
      set_value(p.value.view(), {0, 0, key, 5}, number);
      expect_exact(p.inputs(), {}, some_rows(kFarShape, 12));
      set_value(p.key.view(), {0, 0, key, 7}, number < 1 ? number : 1e18);
      expect_exact(p.inputs(), {}, some_rows(kFarShape, 12));
    }
  }
}

TEST_F(AttentionMagnitudes, FusedMultiplyAddsOnRequest) {
  RandomProblem p = far_problem();
  AttentionOptions options{.float32_by_tiles = false};
  expect_exact(p.inputs(), options, some_rows(kFarShape, 12));
  const Forward wide = forward(p.inputs(), options);
  const Forward usual = forward(p.inputs());
  for (const Index at : {Index{0, 0, 0, 0}, Index{0, 1, 109, 39}}) {
    EXPECT_NEAR(wide.context.value(at), usual.context.value(at), 1e-6);
  }
}

}  // namespace
}  // namespace fovea::test
