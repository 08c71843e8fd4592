// SPDX-License-Identifier: Apache-2.0
//
// Few queries of grouped heads, which a pass may compute together: one panel then has rows of
// several heads. The results match the oracle, and their bits depend neither on threads, on strides
// nor on lenses. passes_test.cc has packed sequences.

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/attention_options.h"
#include "fovea/lenses.h"
#include "fovea/mask.h"
#include "fovea/random.h"

#include "support/forward.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

/// Rows of one head within a vector, across vectors, and across panels; with a head's rows in the
/// last vector of one panel and the first of the next.
constexpr std::int64_t kQueries[] = {2, 3, 4, 5, 6, 8, 9, 12, 20, 24, 33};

std::vector<AttentionOptions> masked_options(const ProblemShape& shape) {
  const Tensor query_ids = RandomState(3).randint(0, 3, {shape.q_len});
  const Tensor key_ids = RandomState(4).randint(0, 3, {shape.kv_len});
  Tensor open = convert(RandomState(2).randint(0, 2, {shape.q_len, shape.kv_len}), DType::kBool);
  Tensor by_head = convert(RandomState(5).randint(0, 2, {shape.q_heads, shape.q_len, shape.kv_len}),
                           DType::kBool);
  std::vector<AttentionOptions> all{{},
                                    {.mask = causal()},
                                    {.mask = causal(), .alignment = Alignment::top_left()},
                                    {.mask = window(20, 3), .score = {.softcap = 2.0}},
                                    {.mask = window(7, 7) | prefix(3)},
                                    {.mask = documents(query_ids, key_ids)},
                                    {.mask = dense(std::move(open))},
                                    {.mask = causal() & dense(std::move(by_head))}};
  return all;
}

struct FewQueriesCase {
  ProblemShape shape;
  std::int64_t head_dim, value_dim;
};
std::vector<FewQueriesCase> few_queries_cases() {
  std::vector<FewQueriesCase> all;
  std::size_t turn = 0;
  for (const std::int64_t q_len : kQueries) {
    for (const std::int64_t kv_len : {70, 300}) {
      const std::int64_t batch = turn % 3 == 0 ? 2 : 1;
      const std::int64_t kv_heads = turn % 4 == 0 ? 4 : 8;
      all.push_back({{batch, 32, kv_heads, q_len, kv_len}, 7, turn % 2 == 0 ? 16 : 11});
      ++turn;
    }
  }
  // Too few keys to be decoded.
  for (const std::int64_t q_len : {1, 4}) all.push_back({{1, 32, 8, q_len, 40}, 16, 16});
  // Heads of one key head in parts of different sizes.
  for (const std::int64_t q_len : {18, 23}) {
    all.push_back({{1, 14, 2, q_len, 70}, 16, 16});
    all.push_back({{2, 10, 2, q_len, 150}, 11, 7});
  }
  // So few multiply-adds that fewer than eight items are enough.
  all.push_back({{1, 8, 1, 4, 100}, 16, 16});
  all.push_back({{2, 8, 2, 8, 130}, 7, 16});
  // Parts of 2 and 3 heads, which have two panels with AVX-512, one per item. The larger part fills
  // both, the smaller one only one of its items.
  all.push_back({{1, 20, 4, 20, 70}, 2100, 2100});
  return all;
}

std::string call_name(const ProblemShape& shape) {
  return std::to_string(shape.q_len) + " queries of " + std::to_string(shape.q_heads) + "/" +
         std::to_string(shape.kv_heads) + " heads on " + std::to_string(shape.kv_len) + " keys";
}

TEST(AttentionHeadsTogether, MatchTheOracleForAllMasks) {
  for (const FewQueriesCase& one : few_queries_cases()) {
    const RandomProblem problem = stored_problem(one.shape, one.head_dim, one.value_dim);
    std::size_t number = 0;
    for (const AttentionOptions& options : masked_options(one.shape)) {
      SCOPED_TRACE(call_name(one.shape) + ", options " + std::to_string(number++));
      expect_exact(problem.inputs(), options, some_rows(one.shape, 8));
    }
  }
}

TEST(AttentionHeadsTogether, SameBitsForAnyThreadsAndLayout) {
  for (const FewQueriesCase& one : few_queries_cases()) {
    SCOPED_TRACE(call_name(one.shape));
    const RandomProblem problem = stored_problem(one.shape, one.head_dim, one.value_dim);
    // [batch, length, heads, dim] in memory.
    const auto turned = [](const TensorView& tensor) { return Tensor(tensor.transposed(1, 2)); };
    const Tensor query = turned(problem.query), key = turned(problem.key);
    for (AttentionOptions options : {AttentionOptions{}, AttentionOptions{.mask = causal()}}) {
      options.execution.threads = 1;
      const Forward expected = forward(problem.inputs(), options);
      for (const int threads : {2, 3, 8}) {
        options.execution.threads = threads;
        EXPECT_TRUE(same_bits(forward(problem.inputs(), options), expected)) << threads;
      }
      Tensor context(expected.context.dtype(),
                     {one.shape.batch, one.shape.q_len, one.shape.q_heads, one.value_dim});
      Tensor lse(expected.lse.dtype(), {one.shape.batch, one.shape.q_len, one.shape.q_heads});
      attention_forward(
          query.view().transposed(1, 2), key.view().transposed(1, 2), problem.value, options,
          {.context = context.view().transposed(1, 2), .lse = lse.view().transposed(1, 2)});
      EXPECT_TRUE(same_bits(context.view().transposed(1, 2), expected.context));
      EXPECT_TRUE(same_bits(lse.view().transposed(1, 2), expected.lse));
      Tensor alone(expected.lse.dtype(), expected.lse.shape());
      attention_forward(problem.query, problem.key, problem.value, options, {.lse = alone});
      EXPECT_TRUE(same_bits(alone, expected.lse));
    }
  }
}

TEST(AttentionHeadsTogether, LensesDoNotChangeTheContext) {
  for (const FewQueriesCase& one : few_queries_cases()) {
    SCOPED_TRACE(call_name(one.shape));
    const RandomProblem problem = stored_problem(one.shape, one.head_dim, one.value_dim);
    const Forward expected = forward(problem.inputs(), {.mask = causal()});
    Tensor context(expected.context.dtype(), expected.context.shape());
    Tensor lse(expected.lse.dtype(), expected.lse.shape());
    Tensor entropy(lse.dtype(), lse.shape());
    Lenses lenses;
    lenses.rows.entropy = entropy;
    attention_forward(problem.query, problem.key, problem.value, {.mask = causal()},
                      {.context = context, .lse = lse, .lenses = &lenses});
    EXPECT_TRUE(same_bits(context, expected.context));
    EXPECT_TRUE(same_bits(lse, expected.lse));
    EXPECT_GT(entropy.value({0, 5, one.shape.q_len - 1}), 0.0);
  }
}

TEST(AttentionHeadsTogether, ScoresThatDependOnTheHead) {
  const ProblemShape shape{1, 32, 8, 8, 70};
  const RandomProblem problem = stored_problem(shape, 16, 16);
  std::vector<double> sinks;
  for (std::int64_t head = 0; head < shape.q_heads; ++head) {
    sinks.push_back(0.1 * static_cast<double>(head));
  }
  const Tensor bias = stored(RandomState(6).randn({shape.q_heads, shape.q_len, shape.kv_len}));
  expect_exact(problem.inputs(), {.score = {.alibi = Alibi{}}}, some_rows(shape, 20));
  expect_exact(problem.inputs(), {.score = {.sinks = sinks}}, some_rows(shape, 20));
  expect_exact(problem.inputs(), {.score = {.bias = bias}}, some_rows(shape, 20));
}

TEST(AttentionHeadsTogether, WorkspaceIsLargeEnough) {
  for (const FewQueriesCase& one : few_queries_cases()) {
    const RandomProblem problem = stored_problem(one.shape, one.head_dim, one.value_dim);
    AttentionOptions options{.mask = causal()};
    const Forward expected = forward(problem.inputs(), options);
    std::vector<std::byte> workspace(
        attention_forward_workspace(problem.query, problem.key, problem.value, options));
    options.execution.workspace = workspace;
    EXPECT_TRUE(same_bits(forward(problem.inputs(), options), expected)) << call_name(one.shape);
  }
}

}  // namespace
}  // namespace fovea::test
