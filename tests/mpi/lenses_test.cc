// SPDX-License-Identifier: Apache-2.0
//
// Lenses, head statistics and weights of sharded tensors, against the oracle and against one
// process.

#include "support/lenses.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/distributed.h"
#include "fovea/heads.h"
#include "fovea/weights.h"

#include "mpi/checks.h"
#include "mpi/late_transport.h"
#include "mpi/problems.h"
#include "mpi/ranks.h"
#include "support/message_of.h"

namespace fovea {
namespace {

using mpi::Sharding;
using test::LensSizes;
using test::message_of;
using test::Parts;
using test::ProblemMaker;
using test::ranks;
using test::same_bits;
using test::Seen;
using test::ShardedProblem;

/// Returns a random problem that lenses support.
ShardedProblem next_lens_problem(ProblemMaker& maker, bool weights) {
  for (;;) {
    ShardedProblem p = maker.next();
    p.options.dropout = {};
    p.context = p.whole.query.dtype();
    const bool float64 = p.context == DType::kFloat64;
    if (p.queries.length() > 0 && p.keys.length() > 0 && !(weights && float64)) return p;
  }
}

/// Computes all lenses with sharded tensors. The results of all rows are on rank 0.
Seen look(const ShardedProblem& p, const LensSizes& sizes, mpi::Transport& transport) {
  const Parts own(p);
  Seen seen = test::room_for(p.whole.inputs(), sizes);
  Tensor* const rows[] = {
      &seen.context,     &seen.lse,           &seen.entropy,    &seen.maximum,
      &seen.maximum_key, &seen.mean_distance, &seen.first_key,  &seen.distance_variance,
      &seen.top_keys,    &seen.top_weights,   &seen.mean_offset};
  for (Tensor* const tensor : rows) {
    if (tensor->defined()) *tensor = shard(*tensor, p.queries, transport.rank());
  }
  Lenses lenses = seen.lenses();
  lenses.map.cell_queries = sizes.cell_queries;
  lenses.map.cell_keys = sizes.cell_keys;
  attention_forward(transport, {own.query, own.key, own.value, p.queries, p.keys}, p.options,
                    {.context = seen.context, .lse = seen.lse, .lenses = &lenses});
  for (Tensor* const tensor : rows) {
    if (tensor->defined()) *tensor = gather(transport, p.queries, *tensor);
  }
  return seen;
}

LensSizes random_sizes(const ShardedProblem& p, RandomState& random) {
  LensSizes sizes;
  sizes.top = random.randint(1, std::min<std::int64_t>(p.keys.length(), 12) + 1);
  if (p.context == DType::kFloat64) return sizes;
  sizes.pool = std::vector{Pool::kSum, Pool::kMean,
                           Pool::kMax}[static_cast<std::size_t>(random.randint(0, 3))];
  const auto divide = [&](std::int64_t length, std::int64_t& cells, std::int64_t& size) {
    cells = random.randint(1, length + 1);
    if (random.randint(0, 2) == 0) return;
    size = cells;
    cells = (length - 1) / size + 1;
  };
  divide(p.queries.length(), sizes.rows, sizes.cell_queries);
  divide(p.keys.length(), sizes.columns, sizes.cell_keys);
  return sizes;
}

TEST(MpiLenses, RandomProblemsMatchTheOracle) {
  ProblemMaker maker(static_cast<std::uint64_t>(300 + ranks().size()), ranks().size());
  RandomState random(5);
  for (int i = 0; i < test::problem_count(130); ++i) {
    const ShardedProblem p = next_lens_problem(maker, false);
    const LensSizes sizes = random_sizes(p, random);
    SCOPED_TRACE("problem " + std::to_string(i) + ": " + description(p));
    const Seen seen = look(p, sizes, ranks());
    if (ranks().rank() == 0) test::LensCheck(p.whole.inputs(), p.options).expect(seen, sizes);
  }
}

TEST(MpiLenses, LongProblemsMatchTheOracle) {
  for (const ShardedProblem& p : test::long_problems()) {
    SCOPED_TRACE(description(p));
    const LensSizes sizes{.top = 5, .rows = 17, .columns = 40, .pool = Pool::kMean};
    const Seen seen = look(p, sizes, ranks());
    if (ranks().rank() == 0) test::LensCheck(p.whole.inputs(), p.options).expect(seen, sizes);
  }
}

TEST(MpiLenses, EqualScoresOfDifferentRanksAreInTheOrderOfKeys) {
  ProblemMaker maker(11, ranks().size());
  ShardedProblem p = next_lens_problem(maker, true);
  p.whole = test::stored_problem({1, 2, 1, 9, 40}, 8, 8);
  // Keys repeat, so that each weight of a row occurs eight times.
  for (std::int64_t j = 5; j < 40; ++j) {
    for (std::int64_t c = 0; c < 8; ++c) {
      set_value(p.whole.key, {0, 0, j, c}, p.whole.key.value({0, 0, j % 5, c}));
    }
  }
  p.options = {};
  p.queries = Sharding::zigzag(9, ranks().size());
  p.keys = Sharding::zigzag(40, ranks().size());
  p.context = DType::kFloat32;
  const LensSizes sizes{.top = 16};
  const Seen seen = look(p, sizes, ranks());
  if (ranks().rank() != 0) return;
  const Seen alone = test::look(p.whole.inputs(), p.options, sizes);
  EXPECT_TRUE(same_bits(seen.top_keys, alone.top_keys));
  EXPECT_TRUE(same_bits(seen.maximum_key, alone.maximum_key));
}

TEST(MpiLenses, TimingDoesNotChangeBits) {
  ProblemMaker maker(8, ranks().size());
  RandomState random(6);
  for (int i = 0; i < 6; ++i) {
    const ShardedProblem p = next_lens_problem(maker, true);
    const LensSizes sizes = random_sizes(p, random);
    SCOPED_TRACE(description(p));
    const Seen first = look(p, sizes, ranks());
    test::LateTransport late(static_cast<std::uint64_t>(100 * i + ranks().rank()));
    const Seen second = look(p, sizes, late);
    EXPECT_TRUE(same_bits(first, second));
  }
}

TEST(MpiLenses, EveryRankHasTheMap) {
  ProblemMaker maker(12, ranks().size());
  const ShardedProblem p = next_lens_problem(maker, true);
  const Parts own(p);
  const ProblemShape shape = test::shape_of(p.whole.inputs());
  LensBuffers buffers(shape, DType::kFloat32, {.map_rows = 1, .map_columns = 1});
  const Lenses lenses{.map = buffers.lenses().map};
  attention_forward(ranks(), {own.query, own.key, own.value, p.queries, p.keys}, p.options,
                    {.lenses = &lenses});
  Tensor first(buffers.cells);
  MPI_Bcast(first.view().data(), static_cast<int>(first.size()), MPI_FLOAT, 0, MPI_COMM_WORLD);
  EXPECT_TRUE(same_bits(first, buffers.cells));
}

TEST(MpiHeads, RandomProblemsMatchOneProcess) {
  ProblemMaker maker(static_cast<std::uint64_t>(400 + ranks().size()), ranks().size());
  for (int i = 0; i < test::problem_count(40); ++i) {
    const ShardedProblem p = next_lens_problem(maker, true);
    SCOPED_TRACE("problem " + std::to_string(i) + ": " + description(p));
    const Parts own(p);
    const ProblemShape shape = test::shape_of(p.whole.inputs());
    std::vector<Tensor> found, expected;
    const auto summary_of = [&](std::vector<Tensor>& tensors) {
      HeadSummary summary;
      summary.blocks = 1 + i % 20;
      tensors.reserve(kHeadNumbers.size());
      for (const HeadNumber& number : kHeadNumbers) {
        tensors.emplace_back(DType::kFloat32, Shape{shape.batch, shape.q_heads});
        summary.*number.output = tensors.back().view();
      }
      return summary;
    };
    attention_heads(ranks(), {own.query, own.key, {}, p.queries, p.keys}, p.options,
                    summary_of(found));
    fovea::attention_heads({p.whole.query, p.whole.key}, p.options, summary_of(expected));
    for (std::size_t n = 0; n < kHeadNumbers.size(); ++n) {
      for_each_index(found[n].shape(), [&](const Index& at) {
        const double value = expected[n].value(at);
        if (std::isnan(value)) {
          EXPECT_TRUE(std::isnan(found[n].value(at))) << kHeadNumbers[n].name;
        } else {
          EXPECT_NEAR(found[n].value(at), value, 1e-4 * (1 + std::abs(value)))
              << kHeadNumbers[n].name;
        }
      });
    }
  }
}

TEST(MpiWeights, ARectangleIsThatOfOneProcess) {
  ProblemMaker maker(static_cast<std::uint64_t>(500 + ranks().size()), ranks().size());
  RandomState random(9);
  for (int i = 0; i < test::problem_count(60); ++i) {
    const ShardedProblem p = next_lens_problem(maker, true);
    SCOPED_TRACE("problem " + std::to_string(i) + ": " + description(p));
    const ProblemShape shape = test::shape_of(p.whole.inputs());
    Tensor lse(DType::kFloat32, {shape.batch, shape.q_heads, shape.q_len});
    fovea::attention_forward(p.whole.query, p.whole.key, p.whole.value, p.options, {.lse = lse});
    const auto range = [&](std::int64_t length) {
      const std::int64_t first = random.randint(0, length);
      return std::pair(first, random.randint(1, length - first + 1));
    };
    const auto [first_query, queries] = range(shape.q_len);
    const auto [first_key, keys] = range(shape.kv_len);
    const WeightTile tile{random.randint(0, shape.batch),
                          random.randint(0, shape.q_heads),
                          first_query,
                          queries,
                          first_key,
                          keys};
    const int root = static_cast<int>(random.randint(0, ranks().size()));
    const Parts own(p);
    const Tensor own_lse = shard(lse, p.queries, ranks().rank());
    const Tensor found = attention_weights(
        ranks(), {own.query, own.key, own_lse, p.queries, p.keys}, tile, p.options, root);
    EXPECT_EQ(found.defined(), ranks().rank() == root);
    if (ranks().rank() != root) continue;
    Tensor expected(DType::kFloat32, {queries, keys});
    fovea::attention_weights({p.whole.query, p.whole.key, lse}, tile, p.options, expected);
    EXPECT_TRUE(same_bits(found, expected));
  }
}

TEST(MpiReceived, RandomProblemsMatchOneProcess) {
  ProblemMaker maker(static_cast<std::uint64_t>(700 + ranks().size()), ranks().size());
  RandomState random(3);
  for (int i = 0; i < test::problem_count(80); ++i) {
    const ShardedProblem p = next_lens_problem(maker, true);
    SCOPED_TRACE("problem " + std::to_string(i) + ": " + description(p));
    const ProblemShape shape = test::shape_of(p.whole.inputs());
    Tensor lse(DType::kFloat32, {shape.batch, shape.q_heads, shape.q_len});
    fovea::attention_forward(p.whole.query, p.whole.key, p.whole.value, p.options, {.lse = lse});
    const std::int64_t recent = random.randint(1, shape.q_len + 1);
    struct Totals {
      Tensor sum, largest, recent, histogram;

      Totals(const ProblemShape& of, std::int64_t keys)
          : histogram(DType::kInt64, {of.batch, of.q_heads, 9}) {
        for (Tensor* tensor : {&sum, &largest, &recent}) {
          *tensor = Tensor(DType::kFloat32, {of.batch, of.q_heads, keys});
          test::fill(*tensor, test::kUntouched);
        }
      }
      ReceivedAttention views(std::int64_t recent_queries) {
        return {sum, largest, recent, recent_queries, histogram};
      }
    };
    const Parts own(p);
    const Tensor own_lse = shard(lse, p.queries, ranks().rank());
    Totals found(shape, own.key.extent(2)), expected(shape, shape.kv_len);
    attention_received(ranks(), {own.query, own.key, own_lse, p.queries, p.keys}, p.options,
                       found.views(recent));
    fovea::attention_received({p.whole.query, p.whole.key, lse}, p.options, expected.views(recent));
    EXPECT_TRUE(same_bits(found.histogram, expected.histogram));
    for (Tensor Totals::*total : {&Totals::sum, &Totals::largest, &Totals::recent}) {
      const Tensor part = shard(expected.*total, p.keys, ranks().rank());
      for_each_index(part.shape(), [&](const Index& at) {
        const double value = part.value(at);
        if (std::isnan(value)) {
          EXPECT_TRUE(std::isnan((found.*total).value(at)));
        } else {
          EXPECT_NEAR((found.*total).value(at), value, 1e-6 * (1 + value));
        }
      });
    }
  }
}

TEST(MpiLensErrors, InvalidLensesAreRefusedOnAllRanks) {
  ProblemMaker maker(13, ranks().size());
  const ShardedProblem p = next_lens_problem(maker, true);
  const Parts own(p);
  const Shape shape = p.whole.query.shape();
  const auto refusal = [&](const PooledMap& wanted) {
    const Lenses lenses{.map = wanted};
    return message_of([&] {
      attention_forward(ranks(), {own.query, own.key, own.value, p.queries, p.keys}, p.options,
                        {.lenses = &lenses});
    });
  };
  Tensor cells(DType::kFloat32, {shape[0], shape[1], shape[2] + 1, 1});
  EXPECT_TRUE(refusal({.cells = cells}).starts_with("map.cells: expected rows from 1 to "));
  Tensor map(DType::kFloat32, {shape[0], shape[1], 1, 1});
  const bool mine = ranks().rank() == 0;
  const std::string differs = refusal({.cells = map, .pool = mine ? Pool::kMax : Pool::kSum});
  EXPECT_EQ(differs.starts_with("outputs: expected the same on all ranks"), ranks().size() > 1)
      << differs;
  const std::string tile = message_of([&] {
    attention_weights(ranks(), {own.query, own.key, {}, p.queries, p.keys},
                      {.queries = 1, .keys = 1}, p.options);
  });
  EXPECT_TRUE(tile.starts_with("lse: expected [batch, q_heads, q_len] = ")) << tile;
}

}  // namespace
}  // namespace fovea
