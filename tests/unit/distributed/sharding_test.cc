// SPDX-License-Identifier: Apache-2.0
//
// Ranges of positions of ranks (fovea/distributed.h). tests/mpi and
// tests/python/test_distributed.py compute with them.

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "fovea/distributed.h"

#include "support/message_of.h"

namespace fovea::distributed {
namespace {

using test::message_of;

TEST(Sharding, LengthsOfRanks) {
  const Sharding sharding = Sharding::zigzag(10, 2);
  EXPECT_EQ(sharding.length(0) + sharding.length(1), 10);
  std::int64_t sum = 0;
  for (const PositionRange& range : sharding.ranges(1)) sum += range.size();
  EXPECT_EQ(sum, sharding.length(1));
}

TEST(Sharding, RanksThatDoNotExist) {
  const Sharding sharding = Sharding::zigzag(10, 2);
  for (const int rank : {-1, 2, 1000}) {
    const std::string refusal =
        "rank: expected 0 or more and less than 2, got " + std::to_string(rank);
    EXPECT_EQ(message_of([&] { sharding.length(rank); }), refusal);
    EXPECT_EQ(message_of([&] { sharding.ranges(rank); }), refusal);
  }
  EXPECT_EQ(message_of([&] { sharding.owner(10); }),
            "position: expected 0 or more and less than 10, got 10");
}

}  // namespace
}  // namespace fovea::distributed
