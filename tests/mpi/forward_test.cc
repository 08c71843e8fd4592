// SPDX-License-Identifier: Apache-2.0
//
// Attention on sharded tensors: against the reference, the same bits for any timing, and errors of
// one rank on all ranks.

#include "support/forward.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <mpi.h>

#include "fovea/error.h"
#include "fovea/mpi.h"
#include "fovea/random.h"

#include "mpi/checks.h"
#include "mpi/late_transport.h"
#include "mpi/problems.h"
#include "mpi/ranks.h"
#include "support/exactness.h"
#include "support/message_of.h"

namespace fovea {
namespace {

using mpi::Sharding;
using test::Forward;
using test::message_of;
using test::own_rows;
using test::Parts;
using test::problem_count;
using test::ProblemMaker;
using test::RandomProblem;
using test::ranks;
using test::same_bits;
using test::ShardedProblem;

Forward forward(const ShardedProblem& p, mpi::Transport& transport) {
  const Parts own(p);
  const Shape shape = own.query.shape();
  Forward result{Tensor(p.context, {shape[0], shape[1], shape[2], own.value.extent(3)}),
                 Tensor(test::lse_type(own.query.dtype()), {shape[0], shape[1], shape[2]})};
  test::fill(result.context, test::kUntouched);
  test::fill(result.lse, test::kUntouched);
  attention_forward(transport, {own.query, own.key, own.value, p.queries, p.keys}, p.options,
                    {result.context, result.lse});
  return result;
}
Forward forward(const ShardedProblem& p) { return forward(p, ranks()); }

void expect_exact(const ShardedProblem& p) { test::expect_exact(p, forward(p), own_rows(p)); }

TEST(MpiForward, RandomProblemsMatchTheOracle) {
  ProblemMaker maker(static_cast<std::uint64_t>(100 + ranks().size()), ranks().size());
  int compared = 0;
  for (int i = 0; i < problem_count(520); ++i) {
    const ShardedProblem p = maker.next();
    SCOPED_TRACE("problem " + std::to_string(i) + ": " + description(p));
    expect_exact(p);
    ++compared;
  }
  if (ranks().rank() == 0) {
    std::printf("%d random problems on %d ranks\n", compared, ranks().size());
  }
}

TEST(MpiForward, LongProblemsMatchTheOracle) {
  for (const ShardedProblem& p : test::long_problems()) {
    SCOPED_TRACE(description(p));
    expect_exact(p);
  }
}

/// Counts the bytes that this rank sends in exchanges.
class CountingTransport final : public mpi::Transport {
 public:
  int rank() const override { return ranks().rank(); }
  int size() const override { return ranks().size(); }
  void begin_exchange(const mpi::Exchange& exchange) override {
    bytes += exchange.send.size();
    ranks().begin_exchange(exchange);
  }
  bool wait(std::chrono::nanoseconds at_most) override { return ranks().wait(at_most); }
  void all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    ranks().all_gather(own, all);
  }

  std::size_t bytes = 0;
};

TEST(MpiForward, OnlyKeysThatOtherRanksSeeTravel) {
  constexpr std::int64_t kLength = 14'000, kDim = 8, kWindow = 100;
  ShardedProblem p;
  p.whole = test::stored_problem({1, 1, 1, kLength, kLength}, kDim, kDim);
  p.options.mask = window(kWindow, 0);
  p.queries = p.keys = Sharding::contiguous(kLength, ranks().size());
  CountingTransport counting;
  forward(p, counting);
  // Up to 255 further keys, and what goes before tensors.
  EXPECT_LE(counting.bytes, (kWindow + 255) * 2 * kDim * sizeof(float) + 1000);
  EXPECT_EQ(counting.bytes > 100, ranks().size() > 1 && ranks().rank() + 1 < ranks().size());
}

TEST(MpiForward, TimingDoesNotChangeBits) {
  ProblemMaker maker(7, ranks().size());
  for (int i = 0; i < 25; ++i) {
    const ShardedProblem p = maker.next();
    SCOPED_TRACE(description(p));
    const Forward once = forward(p);
    for (int run = 0; run < 3; ++run) {
      test::LateTransport late(static_cast<std::uint64_t>(1000 * i + 10 * run + ranks().rank()));
      const Forward again = forward(p, late);
      if (once.lse.size() > 0) {
        EXPECT_TRUE(same_bits(once, again));
      }
    }
  }
}

/// A problem large enough for several work items and blocks of queries.
ShardedProblem large_problem(const Mask& mask, std::int64_t length = 1500) {
  ShardedProblem p;
  p.whole = RandomProblem({1, 2, 1, length, length}, 32, 32);
  for (Tensor* tensor : {&p.whole.query, &p.whole.key, &p.whole.value}) {
    *tensor = convert(*tensor, DType::kFloat32);
  }
  p.options.mask = mask;
  p.options.execution.threads = 1;
  p.queries = p.keys = Sharding::zigzag(length, ranks().size());
  return p;
}

TEST(MpiForward, ThreadsDoNotChangeBits) {
  ShardedProblem p = large_problem(causal());
  const Forward once = forward(p);
  p.options.execution.threads = 3;
  EXPECT_TRUE(same_bits(once, forward(p)));
}

TEST(MpiForward, OneRankGivesTheBitsOfTheEngine) {
  // Every rank computes alone, on a communicator of its own.
  const auto alone = mpi::make_transport(MPI_COMM_SELF);
  ShardedProblem p = large_problem(causal());
  p.queries = p.keys = Sharding::zigzag(1500, 1);
  Forward found{Tensor(DType::kFloat32, p.whole.query.shape()),
                Tensor(DType::kFloat32, {1, 2, 1500})};
  attention_forward(*alone, {p.whole.query, p.whole.key, p.whole.value, p.queries, p.keys},
                    p.options, {found.context, found.lse});
  EXPECT_TRUE(same_bits(found.context, test::forward(p.whole.inputs(), p.options).context));
}

TEST(MpiForward, LargeProblemsMatchTheOracle) {
  ShardedProblem p = large_problem(causal(), 700);
  expect_exact(p);
  p.queries = p.keys = Sharding::contiguous(700, ranks().size());
  p.options.mask = window(100, 0);
  expect_exact(p);
}

TEST(MpiForward, ContextOrLseAlone) {
  const ShardedProblem p = large_problem(causal(), 200);
  const Forward both = forward(p);
  const Parts own(p);
  const mpi::ShardedInputs inputs{own.query, own.key, own.value, p.queries, p.keys};
  Tensor context(both.context.dtype(), both.context.shape()),
      lse(DType::kFloat32, both.lse.shape());
  attention_forward(ranks(), inputs, p.options, {.context = context});
  EXPECT_TRUE(same_bits(context, both.context));
  attention_forward(ranks(), inputs, p.options, {.lse = lse});
  EXPECT_TRUE(same_bits(lse, both.lse));
  attention_forward(ranks(), inputs, p.options, {});
}

TEST(MpiForward, StridedTensors) {
  const ShardedProblem p = large_problem(causal(), 100);
  const Forward expected = forward(p);
  // Layout [batch, length, heads, dim] in memory.
  const auto by_length = [](const Tensor& tensor) {
    return Tensor(tensor.view().transposed(1, 2));
  };
  const Parts own(p);
  const Tensor query = by_length(own.query), key = by_length(own.key), value = by_length(own.value);
  Tensor context = by_length(expected.context);
  test::fill(context, test::kUntouched);
  attention_forward(ranks(),
                    {query.view().transposed(1, 2), key.view().transposed(1, 2),
                     value.view().transposed(1, 2), p.queries, p.keys},
                    p.options, {.context = context.view().transposed(1, 2)});
  EXPECT_TRUE(same_bits(Tensor(context.view().transposed(1, 2)), expected.context));
}

TEST(MpiForward, NanOfVisibleKeysAlonePropagates) {
  ShardedProblem p = large_problem(causal(), 100);
  p.whole.key.at<float>({0, 0, 60, 0}) = NAN;
  const Forward found = forward(p);
  std::int64_t index = 0;
  for (const test::RowList rows = own_rows(p); const reference::Row& row : rows) {
    const std::int64_t own = index++ % std::max<std::int64_t>(1, found.lse.extent(2));
    EXPECT_EQ(std::isnan(found.context.value({0, row.head, own, 0})), row.query >= 60) << row.query;
    EXPECT_EQ(std::isnan(found.lse.value({0, row.head, own})), row.query >= 60) << row.query;
  }
}

TEST(MpiForward, ReportsProgress) {
  ShardedProblem p = large_problem(causal());
  std::vector<std::pair<std::int64_t, std::int64_t>> seen;
  p.options.execution.progress = [&](std::int64_t done, std::int64_t total) {
    seen.emplace_back(done, total);
  };
  forward(p);
  ASSERT_GE(seen.size(), 2U);
  EXPECT_EQ(seen.front().first, 0);
  EXPECT_EQ(seen.back().first, seen.back().second);
  EXPECT_TRUE(std::ranges::is_sorted(seen));
}

// ---- Errors -------------------------------------------------------------------------------------

/// Returns "rank 1" or "ranks 1-6".
std::string other_ranks() {
  return ranks().size() == 2 ? "rank 1" : "ranks 1-" + std::to_string(ranks().size() - 1);
}

std::string refusal(const ShardedProblem& p) {
  return message_of([&] { forward(p); });
}

TEST(MpiForwardErrors, ArgumentsThatDifferAreNamedOnAllRanks) {
  if (ranks().size() < 2) GTEST_SKIP() << "needs two ranks";
  const bool first = ranks().rank() == 0;
  const auto same = [](const std::string& argument, const std::string& on_first,
                       const std::string& on_others) {
    return argument + ": expected the same on all ranks, got " + on_first + " on rank 0, " +
           on_others + " on " + other_ranks();
  };
  const ShardedProblem p = large_problem({}, 64);
  const auto refusal_of = [&](const auto& change) {
    ShardedProblem other = p;
    change(other.options, first);
    return refusal(other);
  };
  using Options = AttentionOptions;
  EXPECT_EQ(refusal_of([](Options& o, bool a) { o.mask = a ? causal() : window(3, 0); }),
            same("mask", "causal()", "window(3, 0)"));
  EXPECT_EQ(refusal_of([](Options& o, bool a) { o.score.scale = a ? 0.5 : 0.25; }),
            same("scale", "0.5", "0.25"));
  EXPECT_EQ(refusal_of([](Options& o, bool a) { o.score.softcap = a ? 0 : 3; }),
            same("softcap", "0", "3"));
  EXPECT_EQ(refusal_of([](Options& o, bool a) {
              if (a) o.score.alibi = Alibi{{1, 0.5}};
            }),
            same("alibi", "slopes [1, 0.5]", "none"));
  EXPECT_EQ(refusal_of([](Options& o, bool a) {
              o.score.sinks = {1, a ? 2.0 : 3.0};
            }),
            same("sinks", "[1, 2]", "[1, 3]"));
  EXPECT_EQ(
      refusal_of([](Options& o, bool a) { o.alignment = a ? Alignment() : Alignment::offset(4); }),
      same("alignment", "bottom_right", "4"));
  EXPECT_EQ(refusal_of([](Options& o, bool a) { o.dropout.probability = a ? 0 : 0.5; }),
            same("dropout", "0, seed 0, call 0, from 0, 0", "0.5, seed 0, call 0, from 0, 0"));
  EXPECT_EQ(refusal_of([](Options& o, bool a) {
              o.score.bias = Tensor(DType::kFloat32, a ? Shape{64} : Shape{1});
            }),
            same("bias", "float32 [64]", "float32 [1]"));
  const std::string ids = refusal_of(
      [](Options& o, bool a) { o.mask = documents(RandomState(a).randint(0, 2, {64})); });
  EXPECT_TRUE(
      ids.starts_with("mask: expected the same on all ranks, got documents(ids), ids int64 "
                      "[64] with digest "))
      << ids;
  const std::string table = refusal_of([](Options& o, bool a) {
    o.score.relative = RelativeTable{RandomState(a).randn({8, 2}), true, 20};
  });
  EXPECT_TRUE(table.starts_with("relative: expected the same on all ranks")) << table;

  ShardedProblem other = p;
  if (first) other.queries = other.keys = Sharding::contiguous(64, ranks().size());
  const std::string count = std::to_string(ranks().size());
  EXPECT_EQ(refusal(other),
            same("queries", "contiguous(64, " + count + ")", "zigzag(64, " + count + ")"));
  other = p;
  if (!first) {
    for (Tensor* tensor : {&other.whole.query, &other.whole.key, &other.whole.value}) {
      *tensor = convert(*tensor, DType::kBFloat16);
    }
    other.context = DType::kBFloat16;
  }
  EXPECT_EQ(refusal(other),
            same("query", "float32 [1, 2, length, 32]", "bfloat16 [1, 2, length, 32]"));
  // Ranks still agree after refusals.
  EXPECT_EQ(refusal(p), "no error");
}

TEST(MpiForwardErrors, InvalidArgumentsOfOneRankAreRefusedOnAll) {
  const int size = ranks().size();
  const std::string last = "rank " + std::to_string(size - 1);
  const auto on_last = [&](const std::string& message) {
    return size == 1 ? message : message + ", on " + last;
  };
  const bool mine = ranks().rank() == size - 1;
  ShardedProblem p = large_problem({}, 64);
  if (mine) p.options.score.softcap = -1;
  EXPECT_EQ(refusal(p), on_last("softcap: expected a finite number of 0 (off) or more, got -1"));
  p.options = {};
  p.options.sequences = {{0, 64}, {0, 64}};
  EXPECT_EQ(refusal(p), "sequences: expected none with sharded tensors, got 1");
  p.options = {};
  p.queries = Sharding::contiguous(64, size + 1);
  EXPECT_EQ(refusal(p).substr(0, 49),
            "queries: expected a sharding among " + std::to_string(size) + " ranks, got c");
  p = large_problem({}, 64);
  const Parts own(p);
  Tensor context(DType::kFloat32, own.query.shape());
  const Tensor short_key(DType::kFloat32, {1, 1, 1, 32});
  const std::string key = message_of([&] {
    attention_forward(ranks(),
                      {own.query, mine ? short_key : own.key, own.value, p.queries, p.keys}, {},
                      {.context = context});
  });
  EXPECT_TRUE(key.starts_with("key: expected the ")) << key;
  EXPECT_EQ(message_of([&] {
              attention_forward(ranks(), {own.query, own.key, own.value, p.queries, p.keys}, {},
                                {.lse = context});
            }).substr(0, 40),
            "lse: expected [batch, q_heads, q_len] = ");
}

/// Runs a problem in which the progress callback of the last rank does something.
template <class Action>
void run_with_action(const Action& action) {
  ShardedProblem p = large_problem({}, 600);
  if (ranks().rank() == ranks().size() - 1) p.options.execution.progress = action;
  forward(p);
}

TEST(MpiForwardErrors, AnErrorDuringWorkReachesAllRanks) {
  const bool failing = ranks().rank() == ranks().size() - 1;
  const std::string rank = "rank " + std::to_string(ranks().size() - 1);
  const auto fail_with = [&](const auto& error) {
    run_with_action([&error](std::int64_t done, std::int64_t) {
      if (done > 0) throw error;
    });
  };
  try {
    fail_with(std::runtime_error("a broken disk"));
    ADD_FAILURE() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), failing ? "a broken disk" : rank + ": a broken disk");
    EXPECT_EQ(dynamic_cast<const mpi::RankError*>(&error) != nullptr, !failing);
  }
  try {
    fail_with(std::bad_alloc());
    ADD_FAILURE() << "no error";
  } catch (const std::bad_alloc&) {
    EXPECT_TRUE(failing);
  } catch (const mpi::RankError& error) {
    EXPECT_FALSE(failing);
    EXPECT_EQ(error.what(), rank + ": out of memory");
  }
  EXPECT_EQ(refusal(large_problem({}, 64)), "no error");
}

TEST(MpiForwardErrors, AStopOnOneRankStopsAll) {
  for (const bool at_once : {true, false}) {
    std::stop_source stop;
    ShardedProblem p = large_problem({}, 600);
    if (ranks().rank() == 0) {
      if (at_once) stop.request_stop();
      p.options.execution.stop = stop.get_token();
      p.options.execution.progress = [&](std::int64_t done, std::int64_t) {
        if (done > 0) stop.request_stop();
      };
    }
    EXPECT_THROW(forward(p), Stopped);
  }
  EXPECT_EQ(refusal(large_problem({}, 64)), "no error");
}

}  // namespace
}  // namespace fovea
