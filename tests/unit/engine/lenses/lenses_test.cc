// SPDX-License-Identifier: Apache-2.0
//
// Lenses against the oracle's weights: every code path of the kernel, awkward sizes, ties, long
// distances, NaN and masked rows. Lenses do not change the bits of the outputs or of other lenses.

#include "fovea/lenses.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/mask.h"
#include "fovea/random.h"

#include "support/forward.h"
#include "support/lenses.h"
#include "support/option_sets.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(AttentionLenses, AgreeWithTheOracle) {
  expect_lenses_under(option_sets(), look, stored_problem(kOptionShape, 33, 20),
                      {{8, 10, 20, Pool::kSum},
                       {1, 13, 33, Pool::kMean},
                       {64, 200, 7, Pool::kMax},
                       {5, 1, 700, Pool::kSum}});
}

/// Returns the sizes of a map with cells of a given size.
LensSizes cells_of_size(const ProblemShape& shape, std::int64_t queries, std::int64_t keys,
                        Pool pool) {
  return {
      3,   (shape.q_len + queries - 1) / queries, (shape.kv_len + keys - 1) / keys, pool, queries,
      keys};
}

TEST(AttentionLenses, CellsOfAGivenSizeAgreeWithTheOracle) {
  // Sizes that divide the lengths and sizes that do not, larger than a length, and of one pair.
  const RandomProblem p = stored_problem(kOptionShape, 33, 20);
  const ProblemShape shape = shape_of(p.inputs());
  std::vector<LensSizes> all = {cells_of_size(shape, 16, 16, Pool::kMax),
                                cells_of_size(shape, 7, 129, Pool::kMean),
                                cells_of_size(shape, 1024, 1024, Pool::kSum),
                                cells_of_size(shape, shape.q_len - 1, 64, Pool::kMax)};
  expect_lenses_under(option_sets(), look, p, all);
  for (const std::int64_t length : {1, 2, 63, 64, 65, 300}) {
    const RandomProblem other = stored_problem({1, 1, 1, length, 301 - length}, 16, 4);
    const ProblemShape sizes = shape_of(other.inputs());
    SCOPED_TRACE(length);
    for (const std::int64_t side : {1, 4, 32}) {
      const LensSizes cells = cells_of_size(sizes, side, 2 * side, Pool::kMax);
      expect_lenses(other.inputs(), {.mask = causal()},
                    {1, cells.rows, cells.columns, cells.pool, side, 2 * side});
    }
  }
}

TEST(AttentionLenses, CellsOfAGivenSizeThatDividesTheLengthsAreThoseOfTheirCount) {
  const RandomProblem p = stored_problem({1, 2, 1, 96, 640}, 16, 4);
  const LensSizes by_size = {3, 6, 20, Pool::kSum, 16, 32};
  const Seen counted = look(p.inputs(), {.mask = causal()}, {3, 6, 20, Pool::kSum});
  EXPECT_TRUE(same_bits(look(p.inputs(), {.mask = causal()}, by_size), counted));
}

TEST(AttentionLenses, EveryKindOfInput) {
  for (const InputKind kind : kInputKinds) {
    SCOPED_TRACE(name_of(kind));
    const RandomProblem p = stored_problem({1, 2, 1, 100, 600}, 24, 8, kind, 3);
    expect_lenses(p.inputs(), {}, {16, 9, 11, Pool::kSum});
  }
}

TEST(AttentionLenses, AwkwardSizes) {
  RandomState random(7);
  for (int number = 0; number < 60 && !HasFailure(); ++number) {
    const ProblemShape shape{random.randint(1, 3), 2, random.randint(1, 3), random.randint(1, 120),
                             random.randint(1, 900)};
    const RandomProblem p = stored_problem(shape, random.randint(1, 40), random.randint(1, 20));
    const LensSizes sizes{random.randint(0, std::min<std::int64_t>(shape.kv_len, 64) + 1),
                          random.randint(1, shape.q_len + 1), random.randint(1, shape.kv_len + 1),
                          static_cast<Pool>(number % 3)};
    SCOPED_TRACE(testing::Message() << shape.q_len << " x " << shape.kv_len << ", top " << sizes.top
                                    << ", map " << sizes.rows << " x " << sizes.columns);
    expect_lenses(p.inputs(), {.mask = number % 2 == 0 ? causal() : Mask()}, sizes);
  }
}

TEST(AttentionLenses, LongDistances) { expect_digits_far_away(look); }

TEST(AttentionLenses, UniformWeights) {
  constexpr std::int64_t kKeys = 100'000;
  RandomProblem p = stored_problem({1, 1, 1, 3, kKeys}, 2, 1);
  fill(p.key, 0.0);
  const Seen seen = look(p.inputs(), {}, {1, 1, 10, Pool::kSum});
  for (std::int64_t q = 0; q < 3; ++q) {
    const double expected = (static_cast<double>(kKeys) * kKeys - 1) / 12;
    EXPECT_NEAR(seen.distance_variance.value({0, 0, q}) / expected, 1.0, 1e-5);
    EXPECT_NEAR(seen.entropy.value({0, 0, q}), std::log(kKeys), 1e-5);
    EXPECT_EQ(seen.maximum_key.value({0, 0, q}), 0);
    for (std::int64_t c = 0; q == 0 && c < 10; ++c) {
      EXPECT_NEAR(seen.cells.value({0, 0, 0, c}), 0.3, 3e-6);
    }
  }
}

TEST(AttentionLenses, TiesGoToTheLowerKey) {
  // Keys repeat with period 3; the highest scores are those of keys 1, 4, 7 and so on.
  constexpr std::int64_t kKeys = 1700;
  RandomProblem p = stored_problem({1, 1, 1, 70, kKeys}, 3, 1);
  for (std::int64_t j = 0; j < kKeys; ++j) {
    for (std::int64_t c = 0; c < 3; ++c) set_value(p.key, {0, 0, j, c}, j % 3 == c ? 1.0 : 0.0);
  }
  for (std::int64_t i = 0; i < 70; ++i) {
    for (std::int64_t c = 0; c < 3; ++c) set_value(p.query, {0, 0, i, c}, c == 1 ? 2.0 : -1.0);
  }
  for (const std::int64_t k : {1, 8, 40, 64}) {
    const Seen seen = look(p.inputs(), {}, {k, 0, 0, Pool::kSum});
    for (std::int64_t i = 0; i < 70; ++i) {
      ASSERT_EQ(seen.maximum_key.value({0, 0, i}), 1) << i;
      for (std::int64_t n = 0; n < k; ++n) {
        ASSERT_EQ(seen.top_keys.value({0, 0, i, n}), 1 + 3 * n) << i << ", " << n << " of " << k;
      }
    }
  }
}

TEST(AttentionLenses, WorstCaseKeyOrder) {
  // Increasing scores: every key enters the list.
  constexpr std::int64_t kKeys = 1500;
  RandomProblem p = stored_problem({1, 1, 1, 50, kKeys}, 1, 1);
  fill(p.query, 1.0);
  for (std::int64_t j = 0; j < kKeys; ++j) {
    set_value(p.key, {0, 0, j, 0}, static_cast<double>(j / 16) / 16.0);
  }
  expect_lenses(p.inputs(), {}, {8, 5, 5, Pool::kSum});
}

TEST(AttentionLenses, ListsOfAnyLength) {
  const RandomProblem p = stored_problem({1, 1, 1, 75, 700}, 24, 8);
  for (const std::int64_t k : {1, 2, 7, 8, 9, 15, 16, 17, 33, 64}) {
    SCOPED_TRACE(k);
    for (const Mask& mask : {Mask(), causal(), window(5, 2)}) {
      expect_lenses(p.inputs(), {.mask = mask}, {k, 0, 0, Pool::kSum});
    }
  }
}

TEST(AttentionLenses, SharpRows) {
  // Nearly all of a row's weight is on a few keys, among thousands: its variance is small, or due
  // to keys with tiny weights that are far away.
  for (const double sharpness : {2.0, 8.0, 30.0, 200.0}) {
    SCOPED_TRACE(sharpness);
    RandomProblem p = stored_problem({1, 2, 1, 40, 3000}, 8, 4);
    for_each_index(p.query.shape(),
                   [&](const Index& at) { set_value(p.query, at, sharpness * p.query.value(at)); });
    expect_lenses(p.inputs(), {}, {3, 0, 0, Pool::kSum});
    expect_lenses(p.inputs(), {.mask = causal()}, {0, 4, 7, Pool::kMax});
  }
}

TEST(AttentionLenses, LocalRows) {
  // Queries and keys on a circle: each query attends to the keys next to its own.
  constexpr std::int64_t kTokens = 700;
  for (const double radius : {30.0, 100.0, 1000.0}) {
    SCOPED_TRACE(radius);
    RandomProblem p = stored_problem({1, 1, 1, kTokens, kTokens}, 2, 4);
    for (std::int64_t i = 0; i < kTokens; ++i) {
      const double angle = 0.008 * static_cast<double>(i);
      for (Tensor* const rows : {&p.query, &p.key}) {
        set_value(*rows, {0, 0, i, 0}, radius * std::cos(angle));
        set_value(*rows, {0, 0, i, 1}, radius * std::sin(angle));
      }
    }
    expect_lenses(p.inputs(), {}, {2, 0, 0, Pool::kSum});
    expect_lenses(p.inputs(), {.mask = causal()}, {9, 20, 20, Pool::kSum});
  }
}

TEST(AttentionLenses, WorkspaceContentsHaveNoEffect) {
  const RandomProblem p = stored_problem({1, 2, 1, 120, 900}, 16, 8);
  for (const Mask& mask : {Mask(), causal(), window(100, 0)}) {
    for (const Pool pool : {Pool::kSum, Pool::kMax}) {
      const LensSizes sizes{8, 9, 31, pool};
      AttentionOptions options{.mask = mask};
      const Seen expected = look(p.inputs(), options, sizes);
      Seen room = room_for(p.inputs(), sizes);
      const std::size_t bytes =
          attention_forward_workspace(p.query, p.key, p.value, options, room.lenses());
      // All bits set: NaN in floats, -1 in integers.
      std::vector<std::byte> memory(bytes, std::byte{0xff});
      options.execution.workspace = memory;
      EXPECT_TRUE(same_bits(look(p.inputs(), options, sizes), expected)) << mask.to_string();
    }
  }
}

TEST(AttentionLenses, LanesWithoutRowsHaveNoEffect) {
  // Fewer queries than a vector has lanes; with a bias, the others have random scores.
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const RandomProblem p = stored_problem({1, 1, 1, 28, 60}, 16, 8, InputKind::kNormal, seed);
    RandomState random(seed);
    AttentionOptions options{.mask = seed % 2 == 0 ? causal() : Mask()};
    options.score.bias = convert(random.randn({28, 60}), DType::kFloat32);
    options.execution.threads = 1;
    const LensSizes sizes{2, 0, 0, Pool::kSum};
    const Seen expected = look(p.inputs(), options, sizes);
    Seen room = room_for(p.inputs(), sizes);
    const std::size_t bytes =
        attention_forward_workspace(p.query, p.key, p.value, options, room.lenses());
    std::vector<float> memory(bytes / sizeof(float));
    for (float& x : memory) x = static_cast<float>(100.0 * (random.rand() - 0.5));
    options.execution.workspace = std::as_writable_bytes(std::span(memory));
    EXPECT_TRUE(same_bits(look(p.inputs(), options, sizes), expected)) << seed;
  }
}

TEST(AttentionLenses, LensesDoNotChangeTheBits) {
  const RandomProblem p = stored_problem(kOptionShape, 33, 20);
  for (const auto& [name, options] : option_sets()) {
    SCOPED_TRACE(name);
    const Forward alone = forward(p.inputs(), options);
    for (const LensSizes& sizes : {LensSizes{8, 10, 20, Pool::kSum}, LensSizes{0, 3, 3, Pool::kMax},
                                   LensSizes{3, 0, 0, Pool::kSum}}) {
      const Seen seen = look(p.inputs(), options, sizes);
      EXPECT_TRUE(same_bits(Forward{seen.context, seen.lse}, alone));
    }
    // A lens has the same bits with and without the others.
    const LensSizes sizes{8, 10, 20, Pool::kSum};
    const Seen all = look(p.inputs(), options, sizes);
    Seen one = room_for(p.inputs(), sizes);
    Lenses lens;
    const AttentionOutputs outputs{.lenses = &lens};
    lens.map.cells = one.cells;
    attention_forward(p.query, p.key, p.value, options, outputs);
    EXPECT_TRUE(same_bits(one.cells, all.cells));
    lens = {};
    lens.top.keys = one.top_keys;
    attention_forward(p.query, p.key, p.value, options, outputs);
    EXPECT_TRUE(same_bits(one.top_keys, all.top_keys));
    lens = {};
    lens.rows.distance_variance = one.distance_variance;
    attention_forward(p.query, p.key, p.value, options, outputs);
    EXPECT_TRUE(same_bits(one.distance_variance, all.distance_variance));
  }
}

TEST(AttentionLenses, AnyNumberOfThreadsGivesTheSameBits) {
  const RandomProblem p = stored_problem(kOptionShape, 33, 20);
  for (const auto& [name, set] : option_sets()) {
    for (const LensSizes& sizes :
         {LensSizes{8, 3, 20, Pool::kSum}, LensSizes{2, 77, 5, Pool::kMean}}) {
      AttentionOptions options = set;
      options.execution.threads = 1;
      const Seen one = look(p.inputs(), options, sizes);
      for (const int threads : {2, 3, 8}) {
        options.execution.threads = threads;
        EXPECT_TRUE(same_bits(look(p.inputs(), options, sizes), one)) << name << threads;
      }
    }
  }
}

TEST(AttentionLenses, CellsOfLongMapsSumToTheQueryCount) {
  // Enough queries for a chunk of the map to span several panels.
  for (const std::int64_t tokens : {60'000, 100'003}) {
    const RandomProblem p = stored_problem({1, 1, 1, tokens, tokens}, 4, 4);
    AttentionOptions options{.mask = window(6, 0)};
    options.execution.threads = 1;
    const LensSizes sizes{0, 7, 50, Pool::kSum};
    const Seen one = look(p.inputs(), options, sizes);
    double sum = 0.0;
    for (const float cell : one.cells.span<float>()) sum += static_cast<double>(cell);
    EXPECT_NEAR(sum / static_cast<double>(tokens), 1.0, 1e-6);
    options.execution.threads = 3;
    EXPECT_TRUE(same_bits(look(p.inputs(), options, sizes), one));
    EXPECT_TRUE(same_bits(forward(p.inputs(), options), Forward{one.context, one.lse}));
  }
}

TEST(AttentionLenses, FullyMaskedRowsAreMarked) {
  const RandomProblem p = stored_problem({1, 1, 1, 40, 30}, 8, 8);
  // Top-left alignment, so that queries beyond the keys' window see none.
  const AttentionOptions options{.mask = window(2, 0), .alignment = Alignment::top_left()};
  const LensSizes sizes{4, 40, 30, Pool::kMean};
  expect_lenses(p.inputs(), options, sizes);
  const Seen seen = look(p.inputs(), options, sizes);
  EXPECT_EQ(seen.maximum_key.value({0, 0, 39}), -1);
  EXPECT_EQ(seen.entropy.value({0, 0, 39}), 0.0);
  EXPECT_TRUE(std::isnan(seen.mean_distance.value({0, 0, 39})));
  EXPECT_EQ(seen.top_keys.value({0, 0, 39, 0}), -1);
  EXPECT_EQ(seen.top_weights.value({0, 0, 39, 0}), 0.0);
  EXPECT_TRUE(std::isnan(seen.cells.value({0, 0, 39, 3})));
  EXPECT_EQ(seen.pairs.value({0, 0, 39, 3}), 0);
}

TEST(AttentionLenses, OnlyNanRowsAreMarked) {
  RandomProblem p = stored_problem({1, 1, 1, 60, 300}, 8, 8);
  set_value(p.query, {0, 0, 17, 3}, std::nan(""));
  set_value(p.key, {0, 0, 290, 1}, kInfinity);  // visible to the last queries only
  const AttentionOptions options{.mask = causal()};
  const LensSizes sizes{4, 60, 10, Pool::kSum};
  expect_lenses(p.inputs(), options, sizes);
  const Seen seen = look(p.inputs(), options, sizes);
  EXPECT_TRUE(std::isnan(seen.entropy.value({0, 0, 17})));
  EXPECT_TRUE(std::isnan(seen.cells.value({0, 0, 17, 0})));
  EXPECT_TRUE(std::isnan(seen.top_weights.value({0, 0, 17, 0})));
  EXPECT_EQ(seen.top_keys.value({0, 0, 17, 0}), -1);
  EXPECT_FALSE(std::isnan(seen.entropy.value({0, 0, 16})));
  EXPECT_FALSE(std::isnan(seen.cells.value({0, 0, 18, 0})));
}

TEST(AttentionLenses, NanRowsKeepTheCellsThatTheyDoNotSee) {
  constexpr std::int64_t kTokens = 100;
  RandomProblem p = stored_problem({1, 1, 1, kTokens, kTokens}, 8, 8);
  set_value(p.key, {0, 0, 7, 1}, std::nan(""));
  set_value(p.query, {0, 0, 90, 0}, std::nan(""));
  Tensor all(DType::kBool, {kTokens, kTokens}), zeros(DType::kFloat32, {kTokens, kTokens});
  fill(all, 1.0);
  fill(zeros, 0.0);
  std::vector<AttentionOptions> ways(5);
  for (AttentionOptions& options : ways) options.mask = causal();
  ways[1].score.bias = zeros;
  ways[2].score.softcap = 30.0;
  ways[3].mask = causal() & dense(all);
  ways[4].mask = window(40, 0);
  for (std::size_t way = 0; way < ways.size(); ++way) {
    SCOPED_TRACE(way);
    const Seen seen = look(p.inputs(), ways[way], {1, kTokens, kTokens, Pool::kSum});
    for (std::int64_t i = 0; i < kTokens; ++i) {
      for (std::int64_t j = 0; j < kTokens; ++j) {
        const std::int64_t first = way == 4 ? i - 40 : 0;
        const bool spoilt = (i >= 7 && first <= 7) || i == 90;
        if (j > i || j < first) {
          ASSERT_EQ(seen.cells.value({0, 0, i, j}), 0.0) << i << ", " << j;
        } else {
          ASSERT_EQ(std::isnan(seen.cells.value({0, 0, i, j})), spoilt) << i << ", " << j;
        }
      }
    }
  }
}

TEST(AttentionLenses, ShortRows) {
  // Nearly equal weights on few keys, at the beginning and at the end of a block of keys.
  const RandomProblem p = stored_problem({1, 1, 1, 66, 130}, 8, 4, InputKind::kNormal, 5);
  for (std::int64_t length = 1; length <= 66; ++length) {
    SCOPED_TRACE(length);
    AttentionOptions options{.mask = key_lengths({length}), .alignment = Alignment::offset(0)};
    options.score.scale = 0.02;
    expect_lenses(p.inputs(), options, {1, 0, 0, Pool::kSum});
    options = {.mask = window(length - 1, 0), .alignment = Alignment::offset(64)};
    options.score.scale = 0.02;
    expect_lenses(p.inputs(), options, {1, 0, 0, Pool::kSum});
  }
}

TEST(AttentionLenses, ASinkThatTakesEverything) {
  const RandomProblem p = stored_problem({1, 1, 1, 5, 70}, 8, 4);
  AttentionOptions options;
  options.score.sinks = {400.0};
  const Seen seen = look(p.inputs(), options, {1, 1, 1, Pool::kSum});
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(seen.entropy.value({0, 0, i}), 0.0) << i;
  EXPECT_EQ(seen.cells.value({0, 0, 0, 0}), 0.0);
}

TEST(AttentionLenses, ScoresOfMinusInfinityDoNotChangeTheContext) {
  // Row 1 has a score of -infinity without a mask (in float16, a very low one). The weight of key
  // 70 is slightly more than 2^20 times the largest weight of the first block, to which the tile
  // unit's forward pass relates all weights.
  constexpr std::int64_t kQueries = 64, kKeys = 192;
  RandomProblem p = stored_problem({1, 1, 1, kQueries, kKeys}, 32, 32);
  fill(p.query, 0.0);
  fill(p.key, 0.0);
  for (std::int64_t i = 0; i < kQueries; ++i) {
    set_value(p.query, {0, 0, i, 0}, 1.0);
    set_value(p.query, {0, 0, i, 1}, 1.0);
  }
  const double huge = p.query.dtype() == DType::kFloat16 ? 6e4 : 3e38;
  set_value(p.query, {0, 0, 1, 2}, huge);
  for (std::int64_t j = 0; j < kKeys; ++j) {
    set_value(p.key, {0, 0, j, 0}, j < 64 ? -static_cast<double>(j % 7) : j == 70 ? 20.0 : -64.0);
  }
  set_value(p.key, {0, 0, 70, 1}, 0.00299072265625);
  set_value(p.key, {0, 0, 80, 2}, -huge);
  AttentionOptions options;
  options.score.scale = std::log(2.0);
  const Seen seen = look(p.inputs(), options, {1, 4, 4, Pool::kSum});
  EXPECT_TRUE(same_bits(Forward{seen.context, seen.lse}, forward(p.inputs(), options)));
  for (std::int64_t i = 0; i < kQueries; ++i) {
    EXPECT_GT(seen.entropy.value({0, 0, i}), 0.0) << i;
    EXPECT_EQ(seen.maximum_key.value({0, 0, i}), 70) << i;
  }
}

TEST(AttentionLenses, PackedSequences) {
  const RandomProblem p = stored_problem({1, 2, 2, 90, 120}, 16, 8);
  AttentionOptions options{.mask = causal()};
  options.sequences = {{0, 20, 20, 90}, {0, 50, 60, 120}};
  const LensSizes sizes{5, 0, 0, Pool::kSum};
  expect_lenses(p.inputs(), options, sizes);
  const Seen seen = look(p.inputs(), options, sizes);
  // Keys are numbered by their position in the tensor.
  EXPECT_GE(seen.maximum_key.value({0, 0, 89}), 60);
}

TEST(AttentionLenses, Float64) {
  const RandomProblem p({2, 2, 1, 37, 90}, 12, 5);
  for (const Pool pool : {Pool::kSum, Pool::kMean, Pool::kMax}) {
    for (const Mask& mask : {Mask(), window(9, 3)}) {
      expect_lenses(p.inputs(), {.mask = mask}, {6, 10, 13, pool});
    }
  }
}

}  // namespace
}  // namespace fovea::test
