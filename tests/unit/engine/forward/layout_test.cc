// SPDX-License-Identifier: Apache-2.0
//
// Layouts of a call's tensors: batches, grouped heads, empty extents, strides of all kinds, and
// omitted outputs.

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/mask.h"
#include "fovea/random.h"

#include "support/forward.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

TEST(AttentionLayout, BatchesAndGroupedHeads) {
  for (const auto& [q_heads, kv_heads] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {4, 4}, {6, 2}, {5, 1}}) {
    for (const std::int64_t batch : {1, 3}) {
      SCOPED_TRACE(testing::Message() << batch << " x " << q_heads << "/" << kv_heads);
      const ProblemShape shape{batch, q_heads, kv_heads, 19, 33};
      const RandomProblem p = stored_problem(shape, 9, 6);
      expect_exact(p.inputs());
      expect_exact(p.inputs(), {.mask = causal()});
    }
  }
}

TEST(AttentionLayout, FewerKeysThanQueries) {
  for (const std::int64_t kv_len : {1, 2, 30, 76}) {
    const RandomProblem p = stored_problem({1, 2, 2, 77, kv_len}, 8, 8);
    for (const Alignment& alignment : {Alignment::bottom_right(), Alignment::top_left()}) {
      expect_exact(p.inputs(), {.mask = causal(), .alignment = alignment});
    }
    // The first rows precede all keys and see none.
    const Forward found = forward(p.inputs(), {.mask = causal()});
    for (std::int64_t row = 0; row < 77 - kv_len; ++row) {
      EXPECT_EQ(found.lse.value({0, 1, row}), -HUGE_VAL);
      EXPECT_EQ(found.context.value({0, 1, row, 7}), 0.0);
    }
    EXPECT_TRUE(std::isfinite(found.lse.value({0, 1, 77 - kv_len})));
  }
}

// ---- Empty problems -----------------------------------------------------------------------------

TEST(AttentionLayout, EmptyExtents) {
  struct Case {
    ProblemShape shape;
    std::int64_t head_dim, value_dim;
  };
  const std::vector<Case> cases{
      {{0, 2, 1, 3, 4}, 5, 6}, {{2, 0, 0, 3, 4}, 5, 6},    {{2, 0, 3, 3, 4}, 5, 6},
      {{2, 2, 1, 0, 4}, 5, 6}, {{2, 2, 1, 3, 0}, 5, 6},    {{2, 2, 1, 3, 4}, 0, 6},
      {{2, 2, 1, 3, 4}, 5, 0}, {{2, 2, 1, 3, 4}, 0, 0},    {{0, 0, 0, 0, 0}, 0, 0},
      {{1, 1, 1, 0, 0}, 0, 0}, {{1, 1, 1, 60, 600}, 0, 7}, {{1, 1, 1, 60, 600}, 7, 0}};
  for (const Case& one : cases) {
    SCOPED_TRACE(testing::Message()
                 << "batch " << one.shape.batch << ", heads " << one.shape.q_heads << ", "
                 << one.shape.q_len << " x " << one.shape.kv_len << ", dims " << one.head_dim
                 << " and " << one.value_dim);
    const RandomProblem p = stored_problem(one.shape, one.head_dim, one.value_dim);
    for (const Mask& mask : {Mask(), causal()}) {
      expect_exact(p.inputs(), {.mask = mask});
      AttentionOptions options{.mask = mask, .score = {.softcap = 3.0, .alibi = Alibi{}}};
      options.score.sinks.assign(static_cast<std::size_t>(one.shape.q_heads), 0.5);
      expect_exact(p.inputs(), options);
    }
  }
}

TEST(AttentionLayout, NoKeysGiveZeroContextAndLseOfMinusInfinityOrTheSink) {
  const RandomProblem p = stored_problem({1, 2, 1, 50, 0}, 4, 3);
  for (const bool sink : {false, true}) {
    AttentionOptions options;
    if (sink) options.score.sinks = {0.25, -7.5};
    const Forward found = forward(p.inputs(), options);
    EXPECT_TRUE(all_are(found.context, 0.0));
    for (std::int64_t row = 0; row < 50; ++row) {
      EXPECT_EQ(found.lse.value({0, 0, row}), sink ? 0.25 : -HUGE_VAL);
      EXPECT_EQ(found.lse.value({0, 1, row}), sink ? -7.5 : -HUGE_VAL);
    }
  }
}

TEST(AttentionLayout, EmptyTensorsNeedNoMemory) {
  const TensorView empty(nullptr, storage(), {1, 1, 0, 4}, {0, 0, 4, 1});
  const Tensor query(storage(), {1, 1, 3, 4});
  Tensor context(storage(), {1, 1, 3, 4});
  fill(context, 1.0);
  attention_forward(query, empty, empty, {}, {.context = context});
  EXPECT_TRUE(all_are(context, 0.0));
  const MutableTensorView nothing(nullptr, storage(), {1, 1, 0, 4}, {0, 0, 4, 1});
  EXPECT_NO_THROW(attention_forward(empty, query, query, {}, {.context = nothing}));
}

// ---- Strides of the inputs ----------------------------------------------------------------------

constexpr std::int64_t kBatch = 2, kHeads = 3, kLength = 70, kDim = 11;

/// Checks that views have the same bits as contiguous copies of them.
void same_as_contiguous(const TensorView& query, const TensorView& key, const TensorView& value) {
  const Tensor q(query), k(key), v(value);
  for (const Mask& mask : {Mask(), causal()}) {
    const Forward expected = forward({q, k, v}, {.mask = mask});
    EXPECT_TRUE(same_bits(forward({query, key, value}, {.mask = mask}), expected));
    EXPECT_TRUE(same_bits(forward({query, k, v}, {.mask = mask}), expected));
    EXPECT_TRUE(same_bits(forward({q, key, v}, {.mask = mask}), expected));
    EXPECT_TRUE(same_bits(forward({q, k, value}, {.mask = mask}), expected));
  }
}

Tensor random_numbers(const Shape& shape, std::uint64_t seed) {
  return stored(RandomState(seed).randn(shape));
}

TEST(AttentionLayout, BatchLengthHeadsDim) {
  const Shape shape{kBatch, kLength, kHeads, kDim};
  const Tensor q = random_numbers(shape, 1), k = random_numbers(shape, 2),
               v = random_numbers(shape, 3);
  same_as_contiguous(q.view().transposed(1, 2), k.view().transposed(1, 2),
                     v.view().transposed(1, 2));
}

TEST(AttentionLayout, PackedQueryKeyValue) {
  const Tensor packed = random_numbers({kBatch, kLength, 3, kHeads, kDim}, 4);
  const Strides strides{3 * kLength * kHeads * kDim, kDim, 3 * kHeads * kDim, 1};
  const auto part = [&](std::int64_t number) {
    return laid_over(packed.view(), number * kHeads * kDim, {kBatch, kHeads, kLength, kDim},
                     strides);
  };
  same_as_contiguous(part(0), part(1), part(2));
}

TEST(AttentionLayout, RepeatedAndReversedRows) {
  const Tensor q = random_numbers({kBatch, kHeads, kLength, kDim}, 5);
  const Tensor one = random_numbers({1, 1, 1, kDim}, 6);
  const Tensor head = random_numbers({1, 1, kLength, kDim}, 7);
  const Shape shape{kBatch, kHeads, kLength, kDim};
  const TensorView everywhere = laid_over(one.view(), 0, shape, {0, 0, 0, 1});
  const TensorView every_head = laid_over(head.view(), 0, shape, {0, 0, kDim, 1});
  const std::int64_t per_head = kLength * kDim;
  const TensorView reversed =
      laid_over(q.view(), q.size() - kDim, shape, {-kHeads * per_head, -per_head, -kDim, 1});
  same_as_contiguous(reversed, every_head, everywhere);
  same_as_contiguous(everywhere, reversed, every_head);
  same_as_contiguous(every_head, everywhere, reversed);
}

TEST(AttentionLayout, RowsWithGapsAndOverlaps) {
  const Tensor numbers = random_numbers({kBatch * kHeads * kLength * (kDim + 5)}, 8);
  const Shape shape{kBatch, kHeads, kLength, kDim};
  const std::int64_t wide = kDim + 5;
  const TensorView gaps =
      laid_over(numbers.view(), 1, shape, {kHeads * kLength * wide, kLength * wide, wide, 1});
  // Each row begins one element after the previous one, like a sliding window over a signal.
  const TensorView sliding = laid_over(numbers.view(), 1, shape, {500, 100, 1, 1});
  same_as_contiguous(gaps, sliding, gaps);
  same_as_contiguous(sliding, gaps, sliding);
}

TEST(AttentionLayout, AnyStrideForADimensionOfOne) {
  const Tensor q = random_numbers({1, 1, 20, 1}, 9);
  const TensorView odd = laid_over(q.view(), 0, {1, 1, 20, 1}, {-3, 77, 1, 1'000'000});
  same_as_contiguous(odd, odd, odd);
}

// ---- Outputs ------------------------------------------------------------------------------------

TEST(AttentionLayout, OutputsWithAnyStrides) {
  const RandomProblem p = stored_problem({kBatch, kHeads, kHeads, kLength, 90}, kDim, 9);
  const Forward expected = forward(p.inputs(), {.mask = causal()});
  const auto check = [&](const MutableTensorView& context, const MutableTensorView& lse) {
    attention_forward(p.query, p.key, p.value, {.mask = causal()}, {context, lse});
    EXPECT_TRUE(same_bits(context, expected.context));
    EXPECT_TRUE(same_bits(lse, expected.lse));
  };
  Tensor by_length(storage(), {kBatch, kLength, kHeads, 9});
  Tensor lse_by_length(DType::kFloat32, {kLength, kHeads, kBatch});
  check(by_length.view().transposed(1, 2), lse_by_length.view().transposed(0, 2));

  Tensor memory(storage(), {4 * kBatch * kHeads * kLength * 9});
  Tensor lse_memory(DType::kFloat32, {7 * kBatch * kHeads * kLength});
  const Shape shape{kBatch, kHeads, kLength, 9};
  const Shape rows{kBatch, kHeads, kLength};
  const std::int64_t per_head = kLength * 11;
  check(laid_over(memory.view(), 0, shape, {kHeads * per_head, per_head, 11, 1}),
        laid_over(lse_memory.view(), 0, rows, {kHeads * kLength * 7, kLength * 7, 7}));
  const std::int64_t last = kBatch * kHeads * kLength - 1;
  check(laid_over(memory.view(), last * 11, shape, {-kHeads * per_head, -per_head, -11, 1}),
        laid_over(lse_memory.view(), last, rows, {-kHeads * kLength, -kLength, -1}));
}

TEST(AttentionLayout, EachOutputIsTheSameAlone) {
  const RandomProblem p = stored_problem({2, 4, 2, 60, 90}, 16, 12);
  for (const int threads : {1, 3}) {
    AttentionOptions options{.mask = causal(), .score = {.sinks = {1, 2, 3, 4}}};
    options.execution.threads = threads;
    const Forward both = forward(p.inputs(), options);
    Forward one{Tensor(storage(), both.context.shape()), Tensor(DType::kFloat32, both.lse.shape())};
    attention_forward(p.query, p.key, p.value, options, {.context = one.context});
    attention_forward(p.query, p.key, p.value, options, {.lse = one.lse});
    EXPECT_TRUE(same_bits(one, both));
    EXPECT_NO_THROW(attention_forward(p.query, p.key, p.value, options, {}));
  }
}

}  // namespace
}  // namespace fovea::test
