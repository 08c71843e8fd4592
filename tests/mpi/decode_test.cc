// SPDX-License-Identifier: Apache-2.0
//
// Decoding with a sharded cache: against the oracle, and the same bits on all ranks.

#include <cstddef>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>
#include <mpi.h>

#include "fovea/distributed.h"

#include "mpi/checks.h"
#include "mpi/late_transport.h"
#include "mpi/problems.h"
#include "mpi/ranks.h"
#include "support/exactness.h"
#include "support/message_of.h"

namespace fovea {
namespace {

using test::Forward;
using test::Parts;
using test::ProblemMaker;
using test::ranks;
using test::ShardedProblem;

Forward decode(const ShardedProblem& p, mpi::Transport& transport) {
  const Parts own(p);
  const Shape shape = p.whole.query.shape();
  Forward result{Tensor(p.context, {shape[0], shape[1], shape[2], own.value.extent(3)}),
                 Tensor(test::lse_type(p.whole.query.dtype()), {shape[0], shape[1], shape[2]})};
  test::fill(result.context, test::kUntouched);
  test::fill(result.lse, test::kUntouched);
  attention_decode(transport, {p.whole.query, own.key, own.value, p.keys}, p.options,
                   {result.context, result.lse});
  return result;
}

TEST(MpiDecode, RandomProblemsMatchTheOracle) {
  ProblemMaker maker(static_cast<std::uint64_t>(600 + ranks().size()), ranks().size());
  for (int i = 0; i < test::problem_count(130); ++i) {
    const ShardedProblem p = maker.next();
    SCOPED_TRACE("problem " + std::to_string(i) + ": " + description(p));
    const ProblemShape shape = test::shape_of(p.whole.inputs());
    const Forward found = decode(p, ranks());
    test::expect_exact(p, found, test::all_rows(shape));
    // All ranks have the same bits.
    Tensor first(found.lse);
    MPI_Bcast(first.view().data(),
              static_cast<int>(static_cast<std::size_t>(first.size()) * dtype_size(first.dtype())),
              MPI_BYTE, 0, MPI_COMM_WORLD);
    EXPECT_TRUE(test::same_bits(first, found.lse));
  }
}

TEST(MpiDecode, TimingDoesNotChangeBits) {
  ProblemMaker maker(9, ranks().size());
  for (int i = 0; i < 6; ++i) {
    const ShardedProblem p = maker.next();
    test::LateTransport late(static_cast<std::uint64_t>(10 * i + ranks().rank()));
    const Forward first = decode(p, ranks()), second = decode(p, late);
    EXPECT_TRUE(test::same_bits(first.context, second.context));
    EXPECT_TRUE(test::same_bits(first.lse, second.lse));
  }
}

TEST(MpiDecode, QueriesMustBeTheSameOnAllRanks) {
  ProblemMaker maker(10, ranks().size());
  ShardedProblem p = maker.next();
  p.whole = test::stored_problem({1, 2, 1, 3, 20}, 8, 8);
  p.options = {};
  p.queries = mpi::Sharding::contiguous(3, ranks().size());
  p.keys = mpi::Sharding::contiguous(20, ranks().size());
  p.context = DType::kFloat32;
  if (ranks().rank() == 0) set_value(p.whole.query, {0, 0, 0, 0}, 5.0);
  const std::string message = test::message_of([&] { decode(p, ranks()); });
  EXPECT_EQ(message.starts_with("outputs: expected the same on all ranks"), ranks().size() > 1)
      << message;
}

}  // namespace
}  // namespace fovea
