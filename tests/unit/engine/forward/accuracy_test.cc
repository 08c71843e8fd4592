// SPDX-License-Identifier: Apache-2.0
//
// Accuracy of the engine: errors within the 1x rule for normal and adversarial inputs, at the sizes
// of FlashAttention's tests and of models. ErrorsOfTheTable prints the table in docs/numerics.md.

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <utility>

#include <gtest/gtest.h>

#include "fovea/mask.h"

#include "support/forward.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

double root_mean_square(const TensorView& found, const TensorView& oracle) {
  double sum = 0.0;
  for_each_index(oracle.shape(), [&](const Index& at) {
    const double difference = found.value(at) - oracle.value(at);
    sum += difference * difference;
  });
  return std::sqrt(sum / static_cast<double>(oracle.size()));
}

TEST(AttentionAccuracy, AsAccurateAsNaiveForAllKindsOfInputs) {
  for (const InputKind kind : kInputKinds) {
    for (const std::int64_t kv_len : {10, 100, 1000}) {
      for (const std::int64_t head_dim : {16, 64, 128}) {
        for (const Mask& mask : {Mask(), causal()}) {
          SCOPED_TRACE(testing::Message() << name_of(kind) << ", kv_len " << kv_len << ", head_dim "
                                          << head_dim << ", " << mask.to_string());
          const RandomProblem p =
              stored_problem({2, 4, 2, kv_len, kv_len}, head_dim, head_dim, kind, 3);
          const RowList rows = some_rows(shape_of(p.inputs()), 80);
          expect_exact(p.inputs(), {.mask = mask}, rows, luck_of_sums(kind, p.inputs(), {}, rows));
        }
      }
    }
  }
}

/// The lengths in FlashAttention's tests.
constexpr std::array<std::pair<std::int64_t, std::int64_t>, 10> kLengths{{{113, 203},
                                                                          {128, 217},
                                                                          {113, 211},
                                                                          {108, 256},
                                                                          {256, 512},
                                                                          {512, 256},
                                                                          {1024, 1024},
                                                                          {1023, 1024},
                                                                          {1024, 1023},
                                                                          {2048, 2048}}};

TEST(AttentionAccuracy, FlashAttentionSizes) {
  int turn = 0;
  for (const auto& [q_len, kv_len] : kLengths) {
    for (const std::int64_t head_dim : {40, 59, 64, 111, 128, 256, 512}) {
      // Only every third of the largest sizes: all of them take a minute.
      if (q_len * kv_len > 1000 * 1000 && head_dim > 64 && turn++ % 3 != 0) continue;
      SCOPED_TRACE(testing::Message() << q_len << " x " << kv_len << " x " << head_dim);
      const ProblemShape shape{1, 2, 1, q_len, kv_len};
      const RandomProblem p = stored_problem(shape, head_dim, head_dim, InputKind::kNormal, 4);
      const RowList rows = some_rows(shape, 16);
      expect_exact(p.inputs(), {.mask = causal()}, rows);
      if (turn % 2 == 0) expect_exact(p.inputs(), {.mask = window(kv_len / 3, 5)}, rows);
    }
  }
}

TEST(AttentionAccuracy, BetterThanNaiveOnAverageForNormalInputs) {
  // The largest error depends on luck, but the average error does not: the average would reveal an
  // exponential with one correct digit less, or sums in sequential order.
  for (const std::int64_t kv_len : {1024, 4096}) {
    const ProblemShape shape{1, 2, 1, 96, kv_len};
    const RandomProblem p = stored_problem(shape, 64, 64, InputKind::kNormal, 5);
    const RowList rows = all_rows(shape);
    const Forward exact = oracle(p.inputs(), {}, rows);
    const Forward plain = naive(p.inputs(), {}, rows);
    const Forward found = rows_of(forward(p.inputs()), rows);
    EXPECT_LT(root_mean_square(found.context, exact.context),
              root_mean_square(plain.context, exact.context));
    EXPECT_LT(root_mean_square(found.lse, exact.lse), root_mean_square(plain.lse, exact.lse));
  }
}

TEST(AttentionAccuracy, ErrorsOfTheTable) {
  std::printf(
      "| inputs | keys | context, largest: engine | naive | on average: engine | naive "
      "| lse, largest: engine | naive |\n|---|---|---|---|---|---|---|---|\n");
  for (const InputKind kind : kInputKinds) {
    for (const std::int64_t kv_len : {128, 1024, 4096}) {
      const ProblemShape shape{1, 1, 1, 96, kv_len};
      const RandomProblem p = stored_problem(shape, 64, 64, kind, 6);
      const RowList rows = all_rows(shape);
      const Forward exact = oracle(p.inputs(), {}, rows);
      const Forward plain = naive(p.inputs(), {}, rows);
      const Forward found = rows_of(forward(p.inputs()), rows);
      std::printf("| %s | %d | %.1e | %.1e | %.1e | %.1e | %.1e | %.1e |\n", name_of(kind),
                  static_cast<int>(kv_len), deviation(found.context, exact.context).largest,
                  deviation(plain.context, exact.context).largest,
                  root_mean_square(found.context, exact.context),
                  root_mean_square(plain.context, exact.context),
                  deviation(found.lse, exact.lse).largest, deviation(plain.lse, exact.lse).largest);
      const Allowance allowance = allowance_of(p.inputs(), {}, rows, exact);
      const Allowance luck = luck_of_sums(kind, p.inputs(), {}, rows);
      EXPECT_TRUE(as_exact_as(found.context, plain.context, exact.context,
                              allowance.context + luck.context));
      EXPECT_TRUE(as_exact_as(found.lse, plain.lse, exact.lse, allowance.lse + luck.lse));
    }
  }
}

}  // namespace
}  // namespace fovea::test
