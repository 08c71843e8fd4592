// SPDX-License-Identifier: Apache-2.0
//
// Which rank owns which positions, and the movement of tensors to and from the ranks.

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/error.h"
#include "fovea/mpi.h"
#include "fovea/random.h"

#include "mpi/ranks.h"
#include "support/exactness.h"
#include "support/message_of.h"

namespace fovea {
namespace {

using mpi::PositionRange;
using mpi::Sharding;
using test::message_of;
using test::ranks;

using Ranges = std::vector<PositionRange>;

TEST(Sharding, Contiguous) {
  const Sharding sharding = Sharding::contiguous(10, 3);
  EXPECT_EQ(sharding.ranges(0), (Ranges{{0, 3}}));
  EXPECT_EQ(sharding.ranges(1), (Ranges{{3, 6}}));
  EXPECT_EQ(sharding.ranges(2), (Ranges{{6, 10}}));
  EXPECT_EQ(sharding.to_string(), "contiguous(10, 3)");
}

TEST(Sharding, Zigzag) {
  const Sharding sharding = Sharding::zigzag(9, 2);
  EXPECT_EQ(sharding.ranges(0), (Ranges{{0, 2}, {6, 9}}));
  EXPECT_EQ(sharding.ranges(1), (Ranges{{2, 6}}));  // chunks 1 and 2 are adjacent
  EXPECT_EQ(sharding.to_string(), "zigzag(9, 2)");
}

TEST(Sharding, Lengths) {
  const Sharding sharding = Sharding::lengths({2, 0, 5});
  EXPECT_EQ(sharding.ranges(0), (Ranges{{0, 2}}));
  EXPECT_EQ(sharding.ranges(1), Ranges{});
  EXPECT_EQ(sharding.ranges(2), (Ranges{{2, 7}}));
  EXPECT_EQ(sharding.to_string(), "lengths(2, 0, 5)");
  EXPECT_FALSE(sharding == Sharding::contiguous(7, 3));
  EXPECT_TRUE(sharding == Sharding::lengths({2, 0, 5}));
  EXPECT_EQ(message_of([] {
              Sharding::lengths({INT64_MAX, 1});
            }),
            "lengths: expected a sum that int64 holds, got 1 after 9223372036854775807");
}

TEST(Sharding, EveryPositionHasOneOwner) {
  for (const int count : {1, 2, 3, 5, 8}) {
    for (std::int64_t length = 0; length <= 20; ++length) {
      for (const Sharding& sharding :
           {Sharding::contiguous(length, count), Sharding::zigzag(length, count)}) {
        SCOPED_TRACE(sharding.to_string());
        EXPECT_EQ(sharding.ranks(), count);
        EXPECT_EQ(sharding.length(), length);
        std::int64_t found = 0;
        for (int rank = 0; rank < count; ++rank) {
          std::int64_t index = 0;
          for (const PositionRange& range : sharding.ranges(rank)) {
            EXPECT_GT(range.size(), 0);
            for (std::int64_t position = range.begin; position < range.end; ++position) {
              EXPECT_EQ(sharding.owner(position), rank);
              EXPECT_EQ(sharding.index(position), index++);
            }
          }
          EXPECT_EQ(sharding.length(rank), index);
          found += index;
        }
        EXPECT_EQ(found, length);
      }
    }
  }
}

TEST(Sharding, LongSequencesDoNotOverflow) {
  const std::int64_t length = (std::int64_t{1} << 62) + 5;
  const Sharding sharding = Sharding::zigzag(length, 7);
  EXPECT_EQ(sharding.length(), length);
  EXPECT_EQ(sharding.owner(length - 1), 0);
}

TEST(Sharding, RefusesInvalidArguments) {
  EXPECT_EQ(message_of([] { Sharding::contiguous(-1, 2); }), "length: expected 0 or more, got -1");
  EXPECT_EQ(message_of([] { Sharding::zigzag(1, 0); }), "ranks: expected 1 or more, got 0");
  EXPECT_EQ(message_of([] { Sharding::lengths({}); }), "lengths: expected one per rank, got none");
  EXPECT_EQ(message_of([] { Sharding::contiguous(3, 2).owner(3); }),
            "position: expected 0 or more and less than 3, got 3");
}

TEST(Shards, ScatterAndGatherAreInverse) {
  const int size = ranks().size();
  std::vector<std::int64_t> lengths;
  for (int rank = 0; rank < size; ++rank) lengths.push_back(rank % 3 * 5);
  RandomState random(3);
  for (const Sharding& sharding :
       {Sharding::contiguous(23, size), Sharding::zigzag(23, size), Sharding::contiguous(2, size),
        Sharding::zigzag(0, size), Sharding::lengths(lengths)}) {
    SCOPED_TRACE(sharding.to_string());
    const Tensor all = random.randn({2, 3, sharding.length(), 4});
    for (const DType dtype : {DType::kFloat64, DType::kBFloat16}) {
      for (const int root : {0, size - 1}) {
        // Layout [batch, length, heads, dim] in memory.
        const Tensor by_length(convert(all, dtype).view().transposed(1, 2));
        const TensorView whole = by_length.view().transposed(1, 2);
        const Tensor part =
            scatter(ranks(), sharding, ranks().rank() == root ? whole : TensorView(), root);
        EXPECT_TRUE(test::same_bits(part, shard(whole, sharding, ranks().rank())));
        const Tensor back = gather(ranks(), sharding, part, root);
        EXPECT_EQ(back.defined(), ranks().rank() == root);
        if (back.defined()) {
          EXPECT_TRUE(test::same_bits(back, whole));
        }
      }
    }
    const Tensor rows = random.randn({2, 3, sharding.length()});
    const Tensor back = gather(ranks(), sharding, shard(rows, sharding, ranks().rank()));
    if (back.defined()) {
      EXPECT_TRUE(test::same_bits(back, rows));
    }
  }
}

TEST(Shards, AllRanksRefuseInvalidArgumentsOfOne) {
  const int size = ranks().size();
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  const int rank = ranks().rank();
  const Sharding sharding = Sharding::contiguous(10, size);
  const Tensor wrong(DType::kFloat32, {1, 1, 9, 2});
  EXPECT_EQ(
      message_of([&] { scatter(ranks(), sharding, wrong, 1); }),
      "whole: expected [batch, heads, length, ...] with length 10, got [1, 1, 9, 2], on rank 1");
  const Tensor part(rank == 1 ? DType::kFloat16 : DType::kFloat32,
                    {1, 1, sharding.length(rank), 2});
  EXPECT_EQ(message_of([&] { gather(ranks(), sharding, part); }),
            "part: expected the same on all ranks, got float32 [1, 1, 10, 2] on " +
                std::string(size == 2   ? "rank 0"
                            : size == 3 ? "ranks 0, 2"
                                        : "ranks 0, 2-" + std::to_string(size - 1)) +
                ", float16 [1, 1, 10, 2] on rank 1");
  const Sharding other = rank == 0 ? sharding : Sharding::zigzag(10, size);
  const Tensor own(DType::kFloat32, {1, 1, other.length(rank), 2});
  EXPECT_EQ(message_of([&] { gather(ranks(), other, own); }),
            "sharding: expected the same on all ranks, got contiguous(10, " + std::to_string(size) +
                ") on rank 0, zigzag(10, " + std::to_string(size) + ") on " +
                (size == 2 ? "rank 1" : "ranks 1-" + std::to_string(size - 1)));
  // Ranks that call different operations notice it.
  EXPECT_THROW(
      {
        if (rank == 0) {
          scatter(ranks(), sharding, Tensor(DType::kFloat32, {1, 1, 10, 2}));
        } else {
          gather(ranks(), sharding, part);
        }
      },
      InvalidArgument);
}

TEST(MpiTransport, RefusesInvalidOptions) {
  EXPECT_EQ(message_of([] {
              mpi::make_transport(MPI_COMM_WORLD, {.timeout = std::chrono::milliseconds(0)});
            }),
            "timeout: expected more than 0 ms, got 0");
}

TEST(MpiTransport, ExchangesAmongAllRanks) {
  const int size = ranks().size(), rank = ranks().rank();
  std::vector<std::byte> sent(3'000'000, std::byte(rank)), got(3'000'000);
  const int from = (rank + size - 1) % size;
  for (int step = 0; step < 3 && size > 1; ++step) {
    ranks().begin_exchange({(rank + 1) % size, sent, from, got});
    while (!ranks().wait(std::chrono::milliseconds(1))) {
    }
    EXPECT_EQ(got, std::vector<std::byte>(got.size(), std::byte(from)));
  }
  EXPECT_TRUE(ranks().wait({}));  // nothing under way
  const std::int64_t own = rank * 100;
  std::vector<std::int64_t> all(static_cast<std::size_t>(size));
  ranks().all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  for (int other = 0; other < size; ++other) {
    EXPECT_EQ(all[static_cast<std::size_t>(other)], other * 100);
  }
}

}  // namespace
}  // namespace fovea
