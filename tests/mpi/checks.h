// SPDX-License-Identifier: Apache-2.0
//
// Parts of sharded problems, and checks of results on all ranks.

#pragma once

#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <mpi.h>

#include "fovea/distributed.h"

#include "mpi/problems.h"
#include "mpi/ranks.h"
#include "support/exactness.h"
#include "support/forward.h"

namespace fovea::test {

/// This rank's parts of query, key and value.
struct Parts {
  Tensor query, key, value;

  Parts(const RandomProblem& whole, const mpi::Sharding& queries, const mpi::Sharding& keys)
      : query(shard(whole.query, queries, ranks().rank())),
        key(shard(whole.key, keys, ranks().rank())),
        value(shard(whole.value, keys, ranks().rank())) {}
  explicit Parts(const ShardedProblem& p) : Parts(p.whole, p.queries, p.keys) {}
};

/// Returns the rows of the whole problem that this rank owns, in the order of its part.
inline RowList own_rows(const ShardedProblem& p) {
  RowList rows;
  const Shape shape = p.whole.query.shape();
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    for (std::int64_t h = 0; h < shape[1]; ++h) {
      for (const mpi::PositionRange& range : p.queries.ranges(ranks().rank())) {
        for (std::int64_t q = range.begin; q < range.end; ++q) rows.push_back({b, h, q});
      }
    }
  }
  return rows;
}

/// Returns the maximum over all ranks.
inline double maximum(double mine) {
  MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return mine;
}

/// Returns long problems in which ranks need few keys of others.
inline std::vector<ShardedProblem> long_problems() {
  constexpr std::int64_t kLength = 1100;
  Tensor ids(DType::kInt64, {kLength});
  for (std::int64_t i = 0; i < kLength; ++i) ids.at<std::int64_t>({i}) = i / 150;
  std::vector<ShardedProblem> problems;
  for (const Mask& mask : {window(100, 10), causal() & documents(ids, ids), key_lengths({300}),
                           window(20, 0) | prefix(5)}) {
    ShardedProblem p;
    p.whole = stored_problem({1, 1, 1, kLength, kLength}, 4, 3);
    p.options.mask = mask;
    p.options.alignment = Alignment::top_left();
    p.options.execution.threads = 1;
    const bool zigzag = problems.size() % 2 == 1;
    p.queries = p.keys = zigzag ? mpi::Sharding::zigzag(kLength, ranks().size())
                                : mpi::Sharding::contiguous(kLength, ranks().size());
    problems.push_back(std::move(p));
  }
  return problems;
}

/// Checks the 1x rule over the rows that the ranks have. Collective.
inline void expect_exact(const ShardedProblem& p, const Forward& found, const RowList& rows) {
  const auto count = static_cast<std::int64_t>(rows.size());
  const Tensor context = Tensor(found.context).reshaped({count, found.context.extent(3)});
  const Tensor lse = Tensor(found.lse).reshaped({count});
  const reference::Inputs in = p.whole.inputs();
  const Forward exact = oracle(in, p.options, rows);
  DType type = p.whole.query.dtype();
  if (type == DType::kFloat64) {
    EXPECT_LT(deviation(context, exact.context).largest, 1e-11);
    EXPECT_LT(deviation(lse, exact.lse).largest, 1e-11);
    return;
  }
  // The coarser of the types of inputs and context determines the naive computation.
  if (rounding_of(p.context) > rounding_of(type)) type = p.context;
  const Forward plain = naive(in, p.options, rows, type);
  Allowance allowance, luck;
  if (!rows.empty()) {
    allowance = allowance_of(in, p.options, rows, exact, type);
    luck = luck_of_sums(p.kind, in, p.options, rows);
  }
  const double of_context = maximum(deviation(context, exact.context).largest);
  const double of_lse = maximum(deviation(lse, exact.lse).largest);
  EXPECT_LE(of_context, maximum(deviation(plain.context, exact.context).largest) +
                            maximum(allowance.context + luck.context));
  // The lse of each part is rounded, and the merged one once more: two further roundings.
  EXPECT_LE(of_lse, maximum(deviation(plain.lse, exact.lse).largest) +
                        maximum(2 * allowance.lse + luck.lse));
}

/// Returns the number of random problems; FOVEA_MPI_PROBLEMS changes it.
inline int problem_count(int usual) {
  const char* const wish = std::getenv("FOVEA_MPI_PROBLEMS");
  return wish == nullptr ? usual : std::atoi(wish);
}

}  // namespace fovea::test
