// SPDX-License-Identifier: Apache-2.0
//
// Gradients are bitwise equal for any number of threads, repeated calls, a caller's workspace, and
// concurrent and nested calls. Items that add to the same elements take turns
// (kernels/backward/turn.h).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_backward.h"
#include "fovea/mask.h"
#include "fovea/random.h"

#include "support/allocations.h"
#include "support/backward.h"
#include "support/message_of.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

/// A problem with options, by name.
struct ThreadCase {
  std::string name;
  ProblemShape shape;
  AttentionOptions options;
};

Tensor bias_of(const Shape& shape, DType dtype = DType::kFloat32) {
  return convert(RandomState(4).randn(shape), dtype);
}

/// Returns problems that cover all ways in which work items share gradients.
std::vector<ThreadCase> thread_cases() {
  constexpr ProblemShape kOneHead{1, 1, 1, 130, 500}, kGrouped{2, 6, 2, 70, 300},
      kPacked{1, 4, 2, 150, 600, 4};
  const PackedSequences sequences{{0, 10, 10, 120, 150}, {0, 300, 320, 321, 600}};
  Tensor open = convert(RandomState(3).randint(0, 2, {70, 300}), DType::kBool);
  return {
      {"one head in several blocks", kOneHead, {}},
      {"causal", kOneHead, {.mask = causal()}},
      {"window", kOneHead, {.mask = window(60, 9), .score = {.softcap = 2.0}}},
      {"grouped", kGrouped, {.mask = causal()}},
      {"dense", kGrouped, {.mask = dense(std::move(open)), .score = {.sinks = {0, 1, 2, 3, 4, 5}}}},
      {"bias of its own", kGrouped, {.score = {.bias = bias_of({2, 6, 70, 300})}}},
      {"bias of a batch item", kGrouped, {.score = {.bias = bias_of({2, 1, 70, 300})}}},
      {"shared bias", kGrouped, {.score = {.bias = bias_of({70, 300})}}},
      {"bias of keys", kGrouped, {.mask = causal(), .score = {.bias = bias_of({300})}}},
      {"bias of queries", kOneHead, {.score = {.bias = bias_of({130, 1})}}},
      {"one bias", kOneHead, {.score = {.bias = bias_of({})}}},
      {"bias of double numbers",
       kGrouped,
       {.score = {.bias = bias_of({6, 1, 300}, DType::kFloat64)}}},
      {"relative",
       kGrouped,
       {.mask = causal(), .score = {.relative = RelativeTable{RandomState(5).randn({32, 6})}}}},
      {"dropout", kOneHead, {.dropout = {.probability = 0.2, .seed = 9}}},
      {"packed",
       kPacked,
       {.mask = causal(),
        .score = {.bias = bias_of({1, 600}), .sinks = {0, 1, 2, 3}},
        .sequences = sequences}}};
}

reference::Gradients run(const ThreadCase& one, const RandomProblem& p, int threads) {
  AttentionOptions options = one.options;
  options.execution.threads = threads;
  return backward(p.inputs(), options, random_loss(p.inputs()));
}

TEST(AttentionBackwardThreads, AnyNumberGivesTheSameBits) {
  for (const ThreadCase& one : thread_cases()) {
    const RandomProblem p = stored_problem(one.shape, 17, 9);
    const reference::Gradients expected = run(one, p, 1);
    for (const int threads : {0, 2, 3, 8}) {
      EXPECT_TRUE(same_bits(run(one, p, threads), expected)) << one.name << ", " << threads;
    }
  }
}

TEST(AttentionBackwardThreads, ManySizesGiveTheSameBits) {
  RandomState random(9);
  for (int number = 0; number < 14; ++number) {
    const ProblemShape shape{random.randint(1, 3), 2, 1, random.randint(1, 200),
                             random.randint(1, 900)};
    const std::int64_t dim = random.randint(1, 70);
    SCOPED_TRACE(testing::Message()
                 << shape.batch << " x " << shape.q_len << " x " << shape.kv_len << " x " << dim);
    const RandomProblem p = stored_problem(shape, dim, dim);
    const ThreadCase one{"", shape, {.mask = number % 2 == 0 ? causal() : Mask()}};
    const reference::Gradients expected = run(one, p, 1);
    for (const int threads : {2, 8}) ASSERT_TRUE(same_bits(run(one, p, threads), expected));
  }
}

TEST(AttentionBackwardThreads, RepeatedCallsGiveTheSameBits) {
  // The contents of the workspace, left by an earlier call, have no effect, not even NaN.
  RandomProblem other = stored_problem({1, 1, 1, 100, 600}, 64, 64);
  fill(other.key, std::numeric_limits<double>::quiet_NaN());
  for (const ThreadCase& one : thread_cases()) {
    const RandomProblem p = stored_problem(one.shape, 17, 9);
    const reference::Gradients expected = run(one, p, 2);
    backward(other.inputs(), {.mask = window(5, 5)}, random_loss(other.inputs()));
    EXPECT_TRUE(same_bits(run(one, p, 2), expected)) << one.name;
  }
}

// ---- Workspaces ---------------------------------------------------------------------------------

TEST(AttentionBackwardThreads, CallersWorkspaceGivesTheSameBits) {
  for (const ThreadCase& one : thread_cases()) {
    const RandomProblem p = stored_problem(one.shape, 17, 9);
    const ResultLoss loss = random_loss(p.inputs());
    const Forward results = forward(p.inputs(), one.options);
    AttentionOptions options = one.options;
    for (const int threads : {1, 3}) {
      options.execution = {.threads = threads};
      const auto gradients = [&] {
        return backward_of(p.inputs(), results, options, loss, {}, storage());
      };
      const reference::Gradients expected = gradients();
      reference::Gradients fresh = fresh_gradients(p.inputs(), options, {}, storage());
      const std::size_t bytes = attention_backward_workspace(
          backward_inputs(p.inputs(), results, loss), options, views_of(fresh));
      // Any alignment is accepted; the previous contents have no effect, not even NaN.
      std::vector<std::byte> memory(bytes + 64, std::byte{0xFF});
      for (const std::size_t shift : {0U, 1U, 63U}) {
        std::ranges::fill(memory, std::byte{0xFF});
        options.execution.workspace = {memory.data() + shift, bytes};
        EXPECT_TRUE(same_bits(gradients(), expected)) << one.name << ", " << shift;
        const auto free = [](std::byte b) { return b == std::byte{0xFF}; };
        EXPECT_TRUE(std::all_of(memory.begin() + static_cast<std::ptrdiff_t>(shift + bytes),
                                memory.end(), free));
        EXPECT_TRUE(
            std::all_of(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(shift), free));
      }
    }
  }
}

TEST(AttentionBackwardThreads, TooSmallAWorkspaceIsRejected) {
  const RandomProblem p = stored_problem({1, 2, 2, 40, 60}, 8, 8);
  const ResultLoss loss = random_loss(p.inputs());
  const Forward results = forward(p.inputs());
  AttentionOptions options;
  reference::Gradients gradients = fresh_gradients(p.inputs(), options, {}, storage());
  const BackwardInputs inputs = backward_inputs(p.inputs(), results, loss);
  const std::size_t bytes = attention_backward_workspace(inputs, options, views_of(gradients));
  std::vector<std::byte> memory(bytes);
  for (const std::size_t given : {std::size_t{1}, bytes / 2, bytes - 64}) {
    options.execution.workspace = {memory.data(), given};
    const std::string message =
        message_of([&] { attention_backward(inputs, options, views_of(gradients)); });
    EXPECT_NE(message.find("workspace"), std::string::npos) << message;
    EXPECT_NE(message.find(std::to_string(given)), std::string::npos) << message;
    for (const Tensor* tensor : {&gradients.query, &gradients.key, &gradients.value}) {
      EXPECT_TRUE(all_are(*tensor, kUntouched));
    }
  }
}

TEST(AttentionBackwardThreads, AllocatesNothingAfterWarmUp) {
  if (!counts_allocations()) GTEST_SKIP() << "allocations are not counted here";
  for (const ThreadCase& one : thread_cases()) {
    const RandomProblem p = stored_problem(one.shape, 17, 9);
    const ResultLoss loss = random_loss(p.inputs());
    const Forward results = forward(p.inputs(), one.options);
    reference::Gradients gradients = fresh_gradients(p.inputs(), one.options, {}, storage());
    AttentionOptions options = one.options;
    options.execution.threads = 1;
    const auto call = [&] {
      attention_backward(backward_inputs(p.inputs(), results, loss), options, views_of(gradients));
    };
    call();
    const std::int64_t before = allocations();
    for (int again = 0; again < 3; ++again) call();
    EXPECT_EQ(allocations() - before, 0) << one.name;
  }
}

// ---- Concurrent and nested calls ----------------------------------------------------------------

TEST(AttentionBackwardThreads, ConcurrentCallsGiveTheSameBits) {
  const std::vector<ThreadCase> all = thread_cases();
  std::vector<RandomProblem> problems;
  std::vector<reference::Gradients> expected;
  for (const ThreadCase& one : all) {
    problems.push_back(stored_problem(one.shape, 17, 9));
    expected.push_back(run(one, problems.back(), 1));
  }
  std::vector<int> wrong(2, 0);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t n = 0; n < all.size(); ++n) {
        const std::size_t which = (n + 3 * t) % all.size();
        const auto found = run(all[which], problems[which], t == 0 ? 2 : 1);
        if (!same_bits(found, expected[which])) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(2, 0));
}

TEST(AttentionBackwardThreads, NestedCallsGiveTheSameBits) {
  const RandomProblem inner = stored_problem({1, 1, 1, 60, 300}, 16, 16);
  const ResultLoss inner_loss = random_loss(inner.inputs());
  const auto inner_expected = backward(inner.inputs(), {.mask = causal()}, inner_loss);
  const ThreadCase one = thread_cases().front();
  const RandomProblem p = stored_problem(one.shape, 17, 9);
  const reference::Gradients expected = run(one, p, 1);
  for (const int threads : {1, 2}) {
    int calls = 0, wrong = 0;
    AttentionOptions options = one.options;
    options.execution.threads = threads;
    options.execution.progress = [&](std::int64_t, std::int64_t) {
      ++calls;
      if (!same_bits(backward(inner.inputs(), {.mask = causal()}, inner_loss), inner_expected))
        ++wrong;
    };
    EXPECT_TRUE(same_bits(backward(p.inputs(), options, random_loss(p.inputs())), expected));
    EXPECT_GT(calls, 1);
    EXPECT_EQ(wrong, 0);
  }
}

}  // namespace
}  // namespace fovea::test
