// SPDX-License-Identifier: Apache-2.0
//
// All small sizes: key counts and dimensions beyond two vectors of the target, query counts beyond
// two panels. Rows are independent, so one oracle serves all query counts.

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/mask.h"

#include "kernels/forward/forward.h"
#include "kernels/simd/target.h"
#include "support/forward.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

/// Returns the first queries of a tensor with one batch item and one head, or the first rows of its
/// results.
TensorView first_rows(const Tensor& tensor, std::int64_t count) {
  Shape shape = tensor.shape();
  shape[shape.rank() > 2 ? 2 : 0] = count;
  return {tensor.view().data(), tensor.dtype(), shape, tensor.view().strides()};
}

/// Checks all query counts from 1 to `most`, with and without a mask, for one key count and one
/// pair of dimensions. Returns the number of problems checked.
int check_queries(std::int64_t most, std::int64_t kv_len, std::int64_t head_dim,
                  std::int64_t value_dim) {
  const RandomProblem p =
      stored_problem({1, 1, 1, most, kv_len}, head_dim, value_dim, InputKind::kNormal, 1);
  const RowList rows = all_rows(shape_of(p.inputs()));
  int problems = 0;
  for (const Mask& mask : {Mask(), causal()}) {
    const AttentionOptions options{.mask = mask, .alignment = Alignment::top_left()};
    const Forward exact = oracle(p.inputs(), options, rows);
    const Forward plain = naive(p.inputs(), options, rows);
    const Allowance allowance = allowance_of(p.inputs(), options, rows, exact);
    const double context_limit =
        deviation(plain.context, exact.context).largest + allowance.context;
    const double lse_limit = deviation(plain.lse, exact.lse).largest + allowance.lse;
    for (std::int64_t q_len = 1; q_len <= most; ++q_len, ++problems) {
      const Forward whole =
          forward({first_rows(p.query, q_len), p.key.view(), p.value.view()}, options);
      const Forward found = rows_of(whole, std::span(rows).first(static_cast<std::size_t>(q_len)));
      const Deviation context = deviation(found.context, first_rows(exact.context, q_len));
      const Deviation lse = deviation(found.lse, first_rows(exact.lse, q_len));
      EXPECT_LE(context.largest, context_limit)
          << "context at " << to_string(context.at) << ": " << context.found << " for "
          << context.expected << "; q_len " << q_len << ", kv_len " << kv_len << ", head_dim "
          << head_dim << ", value_dim " << value_dim << ", mask " << mask.to_string();
      EXPECT_LE(lse.largest, lse_limit)
          << "lse at " << to_string(lse.at) << "; q_len " << q_len << ", kv_len " << kv_len
          << ", head_dim " << head_dim << ", mask " << mask.to_string();
      if (testing::Test::HasFailure()) return problems;  // one failure is enough to investigate
    }
  }
  return problems;
}

/// Returns the panel size of the active target.
std::int64_t panel_lanes() {
  kernels::choose_target();
  return kernels::panel_lanes();
}

TEST(AttentionSweep, EveryKeyCountAndDimensionWithEveryQueryCount) {
  // Beyond two vectors (a panel has two or three) and two tiles.
  const std::int64_t most = std::clamp<std::int64_t>(panel_lanes() + 1, 9, 33);
  int problems = 0;
  for (std::int64_t kv_len = 1; kv_len <= most; ++kv_len) {
    for (std::int64_t head_dim = 1; head_dim <= most && !testing::Test::HasFailure(); ++head_dim) {
      // Testing all pairs of dimensions for each key count would take `most` times as long; here
      // each pair occurs for only one key count.
      const std::int64_t value_dim = (head_dim + 5 * kv_len) % most + 1;
      problems += check_queries(most, kv_len, head_dim, value_dim);
    }
  }
  EXPECT_EQ(problems, 2 * most * most * most);
}

TEST(AttentionSweep, EveryQueryCountPastTwoPanels) {
  for (const std::int64_t kv_len : {1, 9, 40, 70}) {
    for (const std::int64_t head_dim : {1, 8, 19}) {
      check_queries(2 * panel_lanes() + 1, kv_len, head_dim, head_dim + 3);
    }
  }
}

TEST(AttentionSweep, EveryKeyCountPastTwoBlocks) {
  // With these dimensions, blocks have 64 keys, the minimum.
  constexpr std::int64_t kBlock = 64;
  for (std::int64_t kv_len = 1; kv_len <= 2 * kBlock + 1; ++kv_len) {
    const RandomProblem p = stored_problem({1, 1, 1, 3, kv_len}, 512, 512);
    for (const Mask& mask : {Mask(), causal()}) {
      SCOPED_TRACE(kv_len);
      expect_exact(p.inputs(), {.mask = mask});
    }
  }
}

TEST(AttentionSweep, EveryValueDimWithEveryTileRemainder) {
  for (std::int64_t value_dim = 1; value_dim <= 33; ++value_dim) {
    for (const std::int64_t kv_len : {7, 8, 9}) {
      check_queries(5, kv_len, 3, value_dim);
    }
  }
}

TEST(AttentionSweep, AwkwardSizes) {
  for (const std::int64_t q_len : {59, 97, 111}) {
    for (const std::int64_t kv_len : {59, 97, 111}) {
      for (const std::int64_t head_dim : {59, 97, 111}) {
        SCOPED_TRACE(testing::Message() << q_len << " x " << kv_len << " x " << head_dim);
        const RandomProblem p = stored_problem({1, 1, 1, q_len, kv_len}, head_dim, 170 - head_dim);
        expect_exact(p.inputs(), {.mask = causal()}, some_rows(shape_of(p.inputs()), 24));
      }
    }
  }
  const RandomProblem p = stored_problem({1, 1, 1, 1025, 1025}, 59, 111);
  for (const Mask& mask : {Mask(), causal()}) {
    expect_exact(p.inputs(), {.mask = mask}, some_rows(shape_of(p.inputs()), 40));
  }
}

}  // namespace
}  // namespace fovea::test
