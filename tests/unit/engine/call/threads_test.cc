// SPDX-License-Identifier: Apache-2.0
//
// Results are bitwise equal for any number of threads, repeated calls, a caller's workspace,
// concurrent and nested calls, and a forked child. Nothing is allocated once a thread has its
// workspace.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fovea/attention.h"
#include "fovea/error.h"
#include "fovea/mask.h"
#include "fovea/random.h"

#include "support/allocations.h"
#include "support/forward.h"
#include "support/message_of.h"
#include "support/option_sets.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

class AttentionThreads : public testing::Test {
 protected:
  Forward run(AttentionOptions options, int threads) const {
    options.execution.threads = threads;
    return forward(problem_.inputs(), options);
  }

  RandomProblem problem_ = stored_problem(kOptionShape, 33, 20);
};

TEST_F(AttentionThreads, AnyNumberGivesTheSameBits) {
  for (const auto& [name, options] : option_sets()) {
    const Forward one = run(options, 1);
    for (const int threads : {0, 2, 3, 8}) {
      EXPECT_TRUE(same_bits(run(options, threads), one)) << name << ", " << threads;
    }
  }
}

TEST_F(AttentionThreads, AnyNumberGivesTheSameBitsWithFarNumbers) {
  // Some rows are computed in another way where the tile unit multiplies parts of float32.
  for (const double number : {1e-32, 1e20, std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN()}) {
    RandomProblem p = stored_problem({1, 2, 1, 320, 320}, 64, 64);
    fill((number < 1 ? p.key : p.value).view()[0][0][53], number);
    for (const Mask& mask : {causal(), window(40, 11)}) {
      const auto run = [&](int threads) {
        return forward(p.inputs(), {.mask = mask, .execution = {.threads = threads}});
      };
      const Forward one = run(1);
      for (const int threads : {2, 3, 5, 8}) EXPECT_TRUE(same_bits(run(threads), one)) << number;
    }
  }
}

TEST_F(AttentionThreads, CallsFromDestructorsOfItsThread) {
  // Destroyed after the thread's workspace, which is created later.
  struct Last {
    const RandomProblem* problem = nullptr;
    Forward* result = nullptr;
    ~Last() {
      if (result != nullptr) *result = forward(problem->inputs());
    }
  };
  Forward within, after;
  std::thread([&] {
    static thread_local Last last;
    last.problem = &problem_;
    last.result = &after;
    within = forward(problem_.inputs());
  }).join();
  EXPECT_TRUE(same_bits(within, forward(problem_.inputs())));
  EXPECT_TRUE(same_bits(after, within));
}

TEST_F(AttentionThreads, ThreadCountIsLimitedByTheWork) {
  const RandomProblem p = stored_problem({1, 1, 1, 20, 1000}, 64, 64);
  AttentionOptions options;
  options.execution.threads = 1'000'000'000;
  const Forward many = forward(p.inputs(), options);
  const std::size_t bytes = attention_forward_workspace(p.query, p.key, p.value, options);
  EXPECT_LT(bytes, std::size_t{64} << 20);
  options.execution.threads = 1;
  EXPECT_TRUE(same_bits(forward(p.inputs(), options), many));
}

TEST_F(AttentionThreads, ManySizesGiveTheSameBits) {
  RandomState random(9);
  for (int number = 0; number < 60; ++number) {
    const ProblemShape shape{random.randint(1, 3), 2, 1, random.randint(1, 400),
                             random.randint(1, 1200)};
    const std::int64_t dim = random.randint(1, 100);
    SCOPED_TRACE(testing::Message()
                 << shape.batch << " x " << shape.q_len << " x " << shape.kv_len << " x " << dim);
    const RandomProblem p = stored_problem(shape, dim, dim);
    AttentionOptions options;
    if (number % 2 == 0) options.mask = causal();
    options.execution.threads = 1;
    const Forward one = forward(p.inputs(), options);
    for (const int threads : {2, 3, 8}) {
      options.execution.threads = threads;
      ASSERT_TRUE(same_bits(forward(p.inputs(), options), one)) << threads;
    }
  }
}

TEST_F(AttentionThreads, RepeatedCallsGiveTheSameBits) {
  // The contents of the workspace, left by an earlier call, have no effect.
  const RandomProblem other = stored_problem({1, 1, 1, 100, 2000}, 64, 64);
  for (const auto& [name, options] : option_sets()) {
    const Forward first = run(options, 2);
    forward(other.inputs(), {.mask = window(5, 5)});
    EXPECT_TRUE(same_bits(run(options, 2), first)) << name;
  }
}

// ---- Workspaces ---------------------------------------------------------------------------------

TEST_F(AttentionThreads, CallersWorkspaceGivesTheSameBits) {
  for (const auto& [name, options] : option_sets()) {
    for (const int threads : {1, 3}) {
      AttentionOptions own = options;
      own.execution.threads = threads;
      const Forward expected = forward(problem_.inputs(), own);
      const std::size_t bytes =
          attention_forward_workspace(problem_.query, problem_.key, problem_.value, own);
      // Any alignment is accepted, and the previous contents have no effect.
      std::vector<std::byte> memory(bytes + 64, std::byte{0xFF});
      for (const std::size_t shift : {0U, 1U, 4U, 63U}) {
        own.execution.workspace = {memory.data() + shift, bytes};
        EXPECT_TRUE(same_bits(forward(problem_.inputs(), own), expected)) << name << shift;
      }
      EXPECT_TRUE(std::all_of(memory.begin() + static_cast<std::ptrdiff_t>(bytes) + 63,
                              memory.end(), [](std::byte one) { return one == std::byte{0xFF}; }));
    }
  }
}

TEST_F(AttentionThreads, WorkspaceSufficesForASingleOutput) {
  RandomState random(11);
  std::vector<std::byte> memory;
  for (int number = 0; number < 3000; ++number) {
    const ProblemShape shape{1, 1, 1, random.randint(1, 1000), random.randint(1, 40)};
    const std::int64_t head_dim = random.randint(1, 80), value_dim = random.randint(1, 80);
    const Tensor query(storage(), {1, 1, shape.q_len, head_dim});
    const Tensor key(storage(), {1, 1, shape.kv_len, head_dim});
    const Tensor value(storage(), {1, 1, shape.kv_len, value_dim});
    AttentionOptions options;
    options.execution.threads = 2;
    memory.resize(attention_forward_workspace(query, key, value, options));
    options.execution.workspace = memory;
    Tensor lse(DType::kFloat32, {1, 1, shape.q_len});
    ASSERT_EQ(message_of([&] { attention_forward(query, key, value, options, {.lse = lse}); }),
              "no error")
        << shape.q_len << " x " << shape.kv_len << ", dims " << head_dim << " and " << value_dim;
  }
}

TEST_F(AttentionThreads, TooSmallAWorkspaceIsRejectedBeforeTheFirstOfSeveralPasses) {
  const RandomProblem p = stored_problem({1, 4, 2, 134, 600, 2}, 64, 64);
  AttentionOptions options{.sequences = {{0, 4, 134}, {0, 300, 600}}};
  const std::size_t enough = attention_forward_workspace(p.query, p.key, p.value, options);
  Tensor context(storage(), p.query.shape());
  for (std::size_t bytes = 1000; bytes < enough; bytes = bytes * 5 / 4) {
    std::vector<std::byte> memory(bytes);
    options.execution.workspace = memory;
    fill(context, kUntouched);
    EXPECT_NE(message_of([&] {
                attention_forward(p.query, p.key, p.value, options, {.context = context});
              }),
              "no error");
    EXPECT_TRUE(all_are(context, kUntouched)) << bytes;
  }
}

TEST_F(AttentionThreads, TooSmallAWorkspaceIsRejectedWithBothSizes) {
  AttentionOptions options;
  const std::size_t bytes =
      attention_forward_workspace(problem_.query, problem_.key, problem_.value, options);
  std::vector<std::byte> memory(bytes);
  Tensor context(storage(), {kOptionShape.batch, kOptionShape.q_heads, kOptionShape.q_len, 20});
  Tensor lse(DType::kFloat32, {kOptionShape.batch, kOptionShape.q_heads, kOptionShape.q_len});
  fill(context, kUntouched);
  fill(lse, kUntouched);
  for (const std::size_t given : {std::size_t{1}, bytes / 2, bytes - 64}) {
    options.execution.workspace = {memory.data(), given};
    EXPECT_EQ(
        message_of([&] {
          attention_forward(problem_.query, problem_.key, problem_.value, options, {context, lse});
        }),
        "workspace: expected " + std::to_string(bytes) + " bytes, got " + std::to_string(given));
  }
  EXPECT_TRUE(all_are(context, kUntouched));
  EXPECT_TRUE(all_are(lse, kUntouched));
}

TEST_F(AttentionThreads, AllocatesNothingAfterWarmUp) {
  if (!counts_allocations()) GTEST_SKIP() << "the sanitizer counts allocations itself";
  Tensor context(storage(), {kOptionShape.batch, kOptionShape.q_heads, kOptionShape.q_len, 20});
  Tensor lse(DType::kFloat32, {kOptionShape.batch, kOptionShape.q_heads, kOptionShape.q_len});
  for (auto& [name, options] : option_sets()) {
    options.execution.threads = 1;
    const auto call = [&, &own = options] {
      attention_forward(problem_.query, problem_.key, problem_.value, own, {context, lse});
    };
    call();
    const std::int64_t before = allocations();
    for (int again = 0; again < 3; ++again) call();
    EXPECT_EQ(allocations() - before, 0) << name;
  }
}

// ---- Concurrent and nested calls ----------------------------------------------------------------

TEST_F(AttentionThreads, ConcurrentCallsGiveTheSameBits) {
  const std::vector<OptionSet> options = option_sets();
  std::vector<Forward> expected;
  for (const OptionSet& one : options) expected.push_back(run(one.options, 1));
  std::vector<int> wrong(2, 0);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t n = 0; n < 2 * options.size(); ++n) {
        const std::size_t which = (n + 3 * t) % options.size();
        const Forward found = run(options[which].options, t == 0 ? 2 : 1);
        if (!same_bits(found, expected[which])) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(2, 0));
}

TEST_F(AttentionThreads, NestedCallsGiveTheSameBits) {
  const RandomProblem inner = stored_problem({1, 1, 1, 300, 300}, 64, 64);
  const Forward inner_expected = forward(inner.inputs(), {.mask = causal()});
  const Forward expected = run({}, 1);
  for (const int threads : {1, 2}) {
    int calls = 0, wrong = 0;
    AttentionOptions options;
    options.execution.progress = [&](std::int64_t, std::int64_t) {
      ++calls;
      if (!same_bits(forward(inner.inputs(), {.mask = causal()}), inner_expected)) ++wrong;
    };
    EXPECT_TRUE(same_bits(run(options, threads), expected));
    EXPECT_GT(calls, 1);
    EXPECT_EQ(wrong, 0);
  }
}

TEST_F(AttentionThreads, ForkedChildGivesTheSameBits) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not follow a fork of several threads";
#endif
  const Forward expected = run({.mask = causal()}, 2);  // starts workers
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);  // instead of hanging
    const bool same = same_bits(run({.mask = causal()}, 2), expected) &&
                      same_bits(run({.mask = causal()}, 0), expected);
    std::_Exit(same ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(same_bits(run({.mask = causal()}, 2), expected)) << "the parent, afterwards";
}

}  // namespace
}  // namespace fovea::test
