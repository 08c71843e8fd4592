// SPDX-License-Identifier: Apache-2.0
//
// Dropout in the engine: exactly the weights that the rule of problem/dropout.h keeps, forward and
// backward, on every target; as accurate as without dropout.

#include "problem/dropout.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/attention_options.h"
#include "fovea/mask.h"
#include "fovea/paged_key_value.h"
#include "fovea/random.h"

#include "support/backward.h"
#include "support/forward.h"
#include "support/message_of.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

constexpr Dropout kDropout{.probability = 0.3, .seed = 0x123456789abcdef, .call = 3};

void expect_dropped_exact(const reference::Inputs& in, const AttentionOptions& options) {
  const RowList rows = all_rows(shape_of(in));
  // Kept weights are scaled by this factor.
  const double factor = 1.0 / (1.0 - options.dropout.probability);
  const Forward exact = oracle(in, options, rows);
  const Allowance usual = allowance_of(in, options, rows, exact);
  expect_exact(in, options, rows, {.context = (factor - 1.0) * usual.context});
}

TEST(AttentionDropout, AsAccurateAsNaive) {
  for (const double probability : {0.1, 0.5, 0.95}) {
    for (const ProblemShape& shape :
         {ProblemShape{2, 4, 2, 53, 90}, ProblemShape{1, 1, 1, 30, 1100}}) {
      for (const Mask& mask : {Mask(), causal(), window(9, 30)}) {
        SCOPED_TRACE(testing::Message() << probability << ", " << mask.to_string());
        const RandomProblem p = stored_problem(shape, 11, 17);
        const Dropout dropout{.probability = probability, .seed = 5, .call = 1};
        expect_dropped_exact(p.inputs(), {.mask = mask, .dropout = dropout});
        expect_dropped_exact(p.inputs(),
                             {.mask = mask, .score = {.softcap = 2.0}, .dropout = dropout});
      }
    }
  }
}

TEST(AttentionDropout, DoesNotChangeLse) {
  const RandomProblem p = stored_problem({2, 4, 2, 53, 600}, 11, 17);
  const AttentionOptions without{.mask = causal(), .score = {.sinks = {0, 1, 2, 3}}};
  AttentionOptions with = without;
  with.dropout = kDropout;
  EXPECT_TRUE(same_bits(forward(p.inputs(), with).lse, forward(p.inputs(), without).lse));
  EXPECT_FALSE(same_bits(forward(p.inputs(), with).context, forward(p.inputs(), without).context));
  with.dropout.probability = 0.0;
  EXPECT_TRUE(same_bits(forward(p.inputs(), with), forward(p.inputs(), without)));
}

// ---- Which weights are kept ---------------------------------------------------------------------

/// Returns a problem whose scores are all 0 and whose values form an identity matrix: the context
/// holds the remaining weights.
RandomProblem weights_problem(const ProblemShape& shape) {
  RandomProblem p;
  p.query = Tensor(storage(), {shape.batch, shape.q_heads, shape.q_len, 2});
  p.key = Tensor(storage(), {shape.batch, shape.kv_heads, shape.kv_len, 2});
  p.value = Tensor(storage(), {shape.batch, shape.kv_heads, shape.kv_len, shape.kv_len});
  for_each_index(p.value.shape(), [&](const Index& at) {
    if (at[2] == at[3]) set_value(p.value, at, 1.0);
  });
  return p;
}

/// Returns true if the rule keeps a weight, and false for weights outside all sequences.
bool kept(const AttentionOptions& options, const ProblemShape& shape, const Index& at) {
  for (std::int64_t item = 0; item < shape.items(); ++item) {
    const SequenceSpan span = sequence_span(options, shape, item);
    const std::int64_t query = at[2] - span.query_start, key = at[3] - span.key_start;
    if (span.batch != at[0] || query < 0 || query >= span.q_len || key < 0 || key >= span.kv_len)
      continue;
    return DropoutRule(options.dropout, item, at[1], shape.q_heads).keeps(query, key);
  }
  return false;
}

struct Kept {
  std::int64_t count = 0, wrong = 0;
};

Kept kept_by_forward(const AttentionOptions& options, const ProblemShape& shape) {
  const RandomProblem p = weights_problem(shape);
  const Forward found = forward(p.inputs(), options);
  Kept result;
  for_each_index(found.context.shape(), [&](const Index& at) {
    const bool keeps = found.context.value(at) > 0.0;
    result.count += keeps ? 1 : 0;
    result.wrong += keeps != kept(options, shape, at) ? 1 : 0;
  });
  return result;
}

/// Counts the weights that the backward pass keeps. The gradient of the loss is an identity matrix,
/// so that the gradients of values hold the transposed weights.
Kept kept_by_backward(const AttentionOptions& options, const ProblemShape& shape) {
  RandomProblem p = weights_problem(shape);
  p.value = Tensor(storage(), {shape.batch, shape.kv_heads, shape.kv_len, shape.q_len});
  ResultLoss loss = random_loss(p.inputs());
  for_each_index(loss.context.shape(),
                 [&](const Index& at) { set_value(loss.context, at, at[2] == at[3] ? 1.0 : 0.0); });
  const reference::Gradients found = backward(p.inputs(), options, loss);
  Kept result;
  for_each_index(found.value.shape(), [&](const Index& at) {
    const bool keeps = found.value.value(at) > 0.0;
    result.count += keeps ? 1 : 0;
    result.wrong += keeps != kept(options, shape, {at[0], at[1], at[3], at[2]}) ? 1 : 0;
  });
  return result;
}

TEST(AttentionDropout, KeepsTheWeightsOfTheRuleForwardAndBackward) {
  for (const ProblemShape& shape :
       {ProblemShape{1, 1, 1, 1, 1}, ProblemShape{1, 1, 1, 3, 5}, ProblemShape{2, 3, 3, 53, 61},
        ProblemShape{1, 1, 1, 100, 150}, ProblemShape{1, 2, 2, 7, 600}}) {
    for (const Dropout& dropout :
         {kDropout, Dropout{.probability = 0.3, .seed = 7, .call = 4'000'000'000},
          Dropout{.probability = 0.7, .seed = ~std::uint64_t{0}}}) {
      const AttentionOptions options{.dropout = dropout};
      SCOPED_TRACE(testing::Message()
                   << shape.q_len << " x " << shape.kv_len << ", seed " << dropout.seed);
      EXPECT_EQ(kept_by_forward(options, shape).wrong, 0);
      EXPECT_EQ(kept_by_backward(options, shape).wrong, 0);
    }
  }
}

TEST(AttentionDropout, PartsOfAProblemKeepTheWeightsOfTheWhole) {
  for (const std::int64_t first_key : {4, 1, 2, 1003}) {
    AttentionOptions options{.dropout = kDropout};
    options.dropout.first_query = 17;
    options.dropout.first_key = first_key;
    for (const ProblemShape& shape : {ProblemShape{1, 2, 2, 3, 5}, ProblemShape{2, 3, 3, 53, 61},
                                      ProblemShape{1, 1, 1, 100, 150}}) {
      SCOPED_TRACE(testing::Message()
                   << shape.q_len << " x " << shape.kv_len << ", key " << first_key);
      EXPECT_EQ(kept_by_forward(options, shape).wrong, 0);
      EXPECT_EQ(kept_by_backward(options, shape).wrong, 0);
    }
  }
}

TEST(AttentionDropout, CountsWithinPackedSequences) {
  AttentionOptions options{.dropout = kDropout};
  options.sequences = {{0, 5, 5, 60, 61, 100}, {0, 10, 13, 160, 163, 200}};
  const ProblemShape shape{1, 2, 2, 100, 200, 5};
  EXPECT_EQ(kept_by_forward(options, shape).wrong, 0);
  EXPECT_EQ(kept_by_backward(options, shape).wrong, 0);
}

TEST(AttentionDropout, KeepsTheExpectedShare) {
  const ProblemShape shape{1, 2, 2, 200, 300};
  for (const double probability : {0.1, 0.5, 0.9}) {
    AttentionOptions options{.dropout = kDropout};
    options.dropout.probability = probability;
    const double all = 2.0 * 200 * 300, expected = all * (1.0 - probability);
    const double four_sigma = 4.0 * std::sqrt(expected * probability);
    EXPECT_NEAR(static_cast<double>(kept_by_forward(options, shape).count), expected, four_sigma);
    EXPECT_NEAR(static_cast<double>(kept_by_backward(options, shape).count), expected, four_sigma);
  }
}

TEST(AttentionDropout, ThreadCountDoesNotChangeTheBits) {
  const RandomProblem p = stored_problem({1, 2, 1, 200, 900}, 24, 24);
  AttentionOptions options{.mask = causal(), .dropout = kDropout};
  options.execution.threads = 1;
  const Forward one = forward(p.inputs(), options);
  for (const int threads : {2, 3, 8}) {
    options.execution.threads = threads;
    EXPECT_TRUE(same_bits(forward(p.inputs(), options), one)) << threads;
  }
}

// ---- Decoding -----------------------------------------------------------------------------------

TEST(AttentionDropout, DecodeMatchesForward) {
  const RandomProblem p = stored_problem({2, 4, 2, 2, 700}, 24, 16);
  const AttentionOptions options{.mask = causal(), .dropout = kDropout};
  const Forward expected = forward(p.inputs(), options);
  Forward found = expected;
  fill(found.context, kUntouched);
  fill(found.lse, kUntouched);
  attention_decode(p.query, p.key, p.value, options, {found.context, found.lse});
  EXPECT_TRUE(same_bits(found, expected));

  const std::size_t bytes = attention_decode_workspace(p.query, p.key, p.value, options);
  EXPECT_EQ(bytes, attention_forward_workspace(p.query, p.key, p.value, options));
  std::vector<std::byte> memory(bytes);
  AttentionOptions own = options;
  own.execution.workspace = memory;
  fill(found.context, kUntouched);
  attention_decode(p.query, p.key, p.value, own, {found.context, found.lse});
  EXPECT_TRUE(same_bits(found, expected));
}

TEST(AttentionDropout, RejectedWithPagedCaches) {
  const RandomProblem p = stored_problem({1, 2, 1, 1, 8}, 4, 4);
  const Tensor table = Tensor::from<std::int64_t>({1, 1}, {0});
  const Tensor lengths = Tensor::from<std::int64_t>({1}, {8});
  const PagedKeyValue cache{
      .key = p.key, .value = p.value, .block_table = table, .lengths = lengths};
  Forward found{Tensor(storage(), {1, 2, 1, 4}), Tensor(DType::kFloat32, {1, 2, 1})};
  fill(found.context, kUntouched);
  const auto call = [&](double probability) {
    return message_of([&] {
      attention_decode(p.query, cache, {.dropout = {.probability = probability}},
                       {found.context, found.lse});
    });
  };
  EXPECT_EQ(call(0.25), "dropout: expected none with a paged cache, got 0.25");
  EXPECT_TRUE(all_are(found.context, kUntouched));
  EXPECT_EQ(call(0.0), "no error");
}

}  // namespace
}  // namespace fovea::test
