// SPDX-License-Identifier: Apache-2.0
//
// Parts of problems: each gives the reference's results for the same rows of the whole problem.

#include "problem/part.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/random.h"
#include "fovea/reference.h"

#include "support/exactness.h"
#include "support/message_of.h"
#include "support/random_problem.h"

namespace fovea {
namespace {

using test::message_of;
using test::RandomProblem;

constexpr ProblemShape kShape{2, 4, 2, 7, 11};

Tensor ids_of(const Shape& shape, std::uint64_t seed) {
  return RandomState(seed).randint(0, 3, shape);
}
Tensor booleans(const Shape& shape) {
  return convert(RandomState(3).randint(0, 2, shape), DType::kBool);
}
Tensor numbers(const Shape& shape) { return RandomState(4).randn(shape); }

/// Expects the reference's rows of a part to equal the same rows of the whole problem.
void expect_same_rows(const RandomProblem& problem, const AttentionOptions& options,
                      const ProblemShape& shape, const PartPlace& place) {
  SCOPED_TRACE(testing::Message() << "item " << place.item << ", head " << place.head << ", "
                                  << place.queries << " queries from " << place.first_query);
  const ProblemPart part(options, shape, place);
  const Tensor query(part.queries_of(problem.query)), key(part.keys_of(problem.key)),
      value(part.keys_of(problem.value));
  EXPECT_EQ(query.shape(), (Shape{1, 1, place.queries, problem.query.extent(3)}));
  EXPECT_EQ(key.shape(), (Shape{1, 1, part.shape().kv_len, problem.key.extent(3)}));
  EXPECT_EQ(part.shape().q_len, place.queries);
  validate(part.options(), part.shape());
  std::vector<reference::Row> own, theirs;
  for (std::int64_t i = 0; i < place.queries; ++i) {
    own.push_back({.query = i});
    theirs.push_back({part.span().batch, place.head, part.span().first_query + i});
  }
  const reference::Rows found = reference::attention_rows({query, key, value}, part.options(), own);
  const reference::Rows whole = reference::attention_rows(problem.inputs(), options, theirs);
  EXPECT_TRUE(test::same_bits(found.context, whole.context));
  EXPECT_TRUE(test::same_bits(found.lse, whole.lse));
  for (std::int64_t i = 0; i < place.queries; ++i) {
    for (std::int64_t j = 0; j < part.shape().kv_len; ++j) {
      EXPECT_EQ(found.weights.value({i, j}), whole.weights.value({i, part.span().first_key + j}))
          << i << ", " << j;
    }
  }
}

void expect_parts(const AttentionOptions& options) {
  const RandomProblem problem(kShape, 3, 2);
  for (const auto& [first, count] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 7}, {0, 2}, {3, 3}, {6, 1}}) {
    for (std::int64_t batch = 0; batch < kShape.batch; ++batch) {
      for (const std::int64_t head : {0, 1, 3}) {
        expect_same_rows(problem, options, kShape, {batch, head, first, count});
      }
    }
  }
}

std::vector<Mask> masks_of_every_rule(std::int64_t prefixed) {
  return {Mask(),
          causal(),
          window(2, 1),
          window(-1, 0),
          causal() | prefix(prefixed),
          key_lengths({9}),
          key_lengths({9, 4}),
          causal() & key_lengths({4, 11}),
          documents(ids_of({7}, 1), ids_of({11}, 2)),
          documents(ids_of({2, 7}, 1), ids_of({2, 11}, 2)) & window(4, 4),
          dense(booleans({2, 4, 7, 11})),
          dense(booleans({4, 1, 11})),
          dense(booleans({2, 1, 7, 1})),
          dense(booleans({11})),
          causal() & dense(booleans({7, 11}))};
}

const std::vector<Alignment> kAlignments = {Alignment::bottom_right(), Alignment::top_left(),
                                            Alignment::offsets({-2, 5})};

TEST(ProblemPartTest, EveryMaskUnderEveryAlignment) {
  for (const Alignment& alignment : kAlignments) {
    for (const Mask& mask : masks_of_every_rule(3)) {
      SCOPED_TRACE(mask.to_string());
      expect_parts({.mask = mask, .alignment = alignment});
    }
  }
}

TEST(ProblemPartTest, BiasesOfEveryBroadcastPattern) {
  for (const Shape& shape : {Shape{}, Shape{11}, Shape{1}, Shape{7, 11}, Shape{7, 1}, Shape{1, 11},
                             Shape{4, 7, 11}, Shape{1, 7, 11}, Shape{4, 1, 1}, Shape{2, 4, 7, 11},
                             Shape{2, 1, 1, 11}, Shape{1, 4, 7, 1}}) {
    SCOPED_TRACE(to_string(shape));
    expect_parts({.mask = causal(), .score = {.bias = numbers(shape)}});
  }
}

TEST(ProblemPartTest, ScoresWithOneNumberPerHead) {
  for (const Alignment& alignment : kAlignments) {
    expect_parts(
        {.score = {.scale = 0.3, .softcap = 1.5, .alibi = Alibi{}}, .alignment = alignment});
    expect_parts({.score = {.alibi = Alibi{{0.1, 0.2, 0.3, 0.4}}, .sinks = {-1, 0, 1, 2}},
                  .alignment = alignment});
    expect_parts({.mask = causal(),
                  .score = {.relative = RelativeTable{numbers({8, 4}), true, 5}},
                  .alignment = alignment});
  }
}

TEST(ProblemPartTest, CustomScoresGetPositionsInTheWholeProblem) {
  CustomScore custom;
  custom.state = std::make_shared<const double>(0.25);
  custom.one = [](const void* state, double score, const ScorePosition& at) {
    const auto place =
        static_cast<double>(at.batch * 1000 + at.head * 100 + at.query * 10 + at.key);
    return score + *static_cast<const double*>(state) * (place + static_cast<double>(at.offset));
  };
  custom.tile = [](const void*, const ScoreTile&) {};
  expect_parts({.mask = causal(), .score = {.custom = custom}});
}

struct SeenPositions {
  std::vector<ScorePosition> tiles, tile_derivatives;
};

TEST(ProblemPartTest, CustomTilesAndDerivativesGetPositionsInTheWholeProblem) {
  const auto seen = std::make_shared<SeenPositions>();
  CustomScore whole;
  whole.state = seen;
  whole.one = [](const void*, double score, const ScorePosition&) { return score; };
  whole.tile = [](const void* state, const ScoreTile& tile) {
    static_cast<SeenPositions*>(const_cast<void*>(state))->tiles.push_back(tile.first);
  };
  whole.one_derivative = [](const void*, double score, const ScorePosition& at) {
    return score + static_cast<double>(at.query * 10 + at.key);
  };
  whole.tile_derivative = [](const void* state, const ScoreTile& tile) {
    static_cast<SeenPositions*>(const_cast<void*>(state))->tile_derivatives.push_back(tile.first);
  };
  const AttentionOptions options = {.score = {.custom = whole}};
  const ProblemPart part(options, kShape, {1, 3, 2, 4});
  const CustomScore& own = part.options().score.custom;

  const ScorePosition in_part = {.query = 1, .key = 5, .offset = 6};
  ScoreTile tile;
  tile.first = in_part;
  own.tile(own.state.get(), tile);
  own.tile_derivative(own.state.get(), tile);
  for (const auto& positions : {seen->tiles, seen->tile_derivatives}) {
    ASSERT_EQ(positions.size(), 1U);
    EXPECT_EQ(positions[0].batch, 1);
    EXPECT_EQ(positions[0].head, 3);
    EXPECT_EQ(positions[0].query, 3);
    EXPECT_EQ(positions[0].key, 5);
    EXPECT_EQ(positions[0].offset, 4);  // query + offset is unchanged
  }
  EXPECT_EQ(own.one_derivative(own.state.get(), 0.5, in_part), 35.5);
}

TEST(ProblemPartTest, PackedSequences) {
  const std::vector<std::int64_t> query_starts = {0, 3, 3, 9}, key_starts = {0, 4, 6, 13};
  ProblemShape shape{1, 4, 2, 9, 13};
  shape.sequences = 3;
  const RandomProblem problem(shape, 3, 2);
  for (const Mask& mask :
       {Mask(), causal(), key_lengths({3, 2, 5}), key_lengths({6}) & window(2, 1),
        documents(ids_of({9}, 1), ids_of({13}, 2)), dense(booleans({4, 9, 13})),
        dense(booleans({9, 1}))}) {
    SCOPED_TRACE(mask.to_string());
    const AttentionOptions options = {.mask = mask,
                                      .score = {.bias = numbers({4, 9, 13}), .alibi = Alibi{}},
                                      .sequences = {query_starts, key_starts}};
    for (const PartPlace& place :
         {PartPlace{0, 0, 0, 3}, PartPlace{0, 3, 1, 2}, PartPlace{1, 1, 0, 0},
          PartPlace{2, 2, 2, 3}, PartPlace{2, 3, 5, 1}}) {
      expect_same_rows(problem, options, shape, place);
    }
  }
}

// ---- Ranges of queries and keys -----------------------------------------------------------------

/// Returns rows of a tensor [batch, heads, length, dim].
Tensor rows_of(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  Tensor rows(tensor.dtype(), {tensor.extent(0), tensor.extent(1), count, tensor.extent(3)});
  for_each_index(rows.shape(), [&](const Index& at) {
    rows.at<double>(at) = tensor.at<double>({at[0], at[1], first + at[2], at[3]});
  });
  return rows;
}

/// Expects the weights of a range of pairs, times their share of the row, to equal those of the
/// whole problem.
void expect_same_pairs(const AttentionOptions& options, const PairRange& range) {
  SCOPED_TRACE(testing::Message() << range.queries << " queries from " << range.first_query << ", "
                                  << range.keys << " keys from " << range.first_key);
  const RandomProblem problem(kShape, 3, 2);
  const reference::Steps whole = reference::attention_steps(problem.inputs(), options);
  const AttentionOptions own = part_of(options, kShape, range);
  const Tensor query = rows_of(problem.query, range.first_query, range.queries),
               key = rows_of(problem.key, range.first_key, range.keys),
               value = rows_of(problem.value, range.first_key, range.keys);
  ProblemShape shape = kShape;
  shape.q_len = range.queries;
  shape.kv_len = range.keys;
  validate(own, shape);
  const reference::Steps part = reference::attention_steps({query, key, value}, own);
  for_each_index(part.weights.shape(), [&](const Index& at) {
    const Index there = {at[0], at[1], range.first_query + at[2], range.first_key + at[3]};
    const double share = std::exp(part.lse.value({at[0], at[1], at[2]}) -
                                  whole.lse.value({there[0], there[1], there[2]}));
    const double expected = whole.weights.value(there);
    const double found = part.weights.value(at);
    EXPECT_NEAR(found == 0.0 ? 0.0 : found * share, expected, 1e-12) << to_string(at);
  });
}

void expect_ranges(const AttentionOptions& options) {
  for (const PairRange& range :
       {PairRange{0, 7, 0, 11}, PairRange{0, 3, 0, 4}, PairRange{3, 4, 4, 7}, PairRange{2, 3, 7, 3},
        PairRange{6, 1, 10, 1}, PairRange{7, 0, 2, 5}, PairRange{1, 4, 11, 0}}) {
    expect_same_pairs(options, range);
  }
}

TEST(PairRangeTest, EveryMaskUnderEveryAlignment) {
  for (const Alignment& alignment : kAlignments) {
    for (const Mask& mask : masks_of_every_rule(5)) {
      SCOPED_TRACE(mask.to_string());
      expect_ranges({.mask = mask, .alignment = alignment});
    }
  }
}

TEST(PairRangeTest, ScoresAndDropout) {
  for (const Shape& shape : {Shape{}, Shape{11}, Shape{7, 1}, Shape{4, 7, 11}, Shape{4, 1, 1},
                             Shape{2, 4, 7, 11}, Shape{1, 4, 7, 1}}) {
    SCOPED_TRACE(to_string(shape));
    expect_ranges({.mask = causal(), .score = {.bias = numbers(shape)}});
  }
  for (const Alignment& alignment : kAlignments) {
    expect_ranges(
        {.score = {.scale = 0.3, .softcap = 1.5, .alibi = Alibi{}}, .alignment = alignment});
    expect_ranges({.mask = causal(),
                   .score = {.relative = RelativeTable{numbers({8, 4}), true, 5}},
                   .alignment = alignment});
  }
  expect_ranges({.mask = causal(), .dropout = {.probability = 0.4, .seed = 3}});
}

TEST(PairRangeTest, CustomScoresGetPositionsInTheWholeProblem) {
  CustomScore custom;
  custom.one = [](const void*, double score, const ScorePosition& at) {
    const auto place =
        static_cast<double>(at.batch * 1000 + at.head * 100 + at.query * 10 + at.key);
    return score + 0.01 * (place + static_cast<double>(at.offset));
  };
  custom.tile = [](const void*, const ScoreTile&) {};
  expect_ranges({.mask = causal(), .score = {.custom = custom}});
}

TEST(PairRangeTest, RejectsRangesOutsideTheProblem) {
  const auto message = [](const PairRange& range, const AttentionOptions& options = {}) {
    return message_of([&] { part_of(options, kShape, range); });
  };
  EXPECT_EQ(message({0, 8, 0, 1}),
            "part.queries: expected a range within q_len = 7, got 8 from 0 on");
  EXPECT_EQ(message({0, 7, 9, 3}),
            "part.keys: expected a range within kv_len = 11, got 3 from 9 on");
  EXPECT_EQ(message({0, 7, 0, 11}, {.sequences = {{0, 7}, {0, 11}}}),
            "sequences: expected none in a part with several heads, got 1");
}

TEST(ProblemPartTest, RowValuesAndStridedTensors) {
  const RandomProblem problem(kShape, 3, 2);
  const ProblemPart part({}, kShape, {1, 2, 3, 2});
  // Layout [batch, length, heads, dim].
  const Tensor by_length = numbers({2, 7, 4, 3});
  const TensorView seen = by_length.view().transposed(1, 2);
  const TensorView rows = part.queries_of(seen);
  EXPECT_EQ(rows.value({0, 0, 1, 2}), seen.value({1, 2, 4, 2}));
  const Tensor lse = numbers({2, 4, 7});
  const TensorView own = part.numbers_of(lse);
  EXPECT_EQ(own.shape(), (Shape{1, 1, 2}));
  EXPECT_EQ(own.value({0, 0, 1}), lse.value({1, 2, 4}));
}

TEST(ProblemPartTest, PartsWithoutQueries) {
  const RandomProblem problem(kShape, 3, 2);
  const AttentionOptions options = {
      .mask = causal() & dense(booleans({7, 11})) & documents(ids_of({7}, 1), ids_of({11}, 2)),
      .score = {.bias = numbers({7, 11})}};
  for (const std::int64_t first : {0, 4, 7}) {
    const ProblemPart part(options, kShape, {0, 1, first, 0});
    EXPECT_EQ(part.queries_of(problem.query).shape(), (Shape{1, 1, 0, 3}));
    EXPECT_EQ(part.shape().q_len, 0);
    validate(part.options(), part.shape());
  }
}

TEST(ProblemPartTest, RejectsPlacesOutsideTheProblem) {
  const auto message = [](const PartPlace& place, const AttentionOptions& options = {}) {
    return message_of([&] { ProblemPart(options, kShape, place); });
  };
  EXPECT_EQ(message({2, 0, 0, 1}), "part.item: expected 0 or more and less than batch = 2, got 2");
  EXPECT_EQ(message({0, -1, 0, 1}),
            "part.head: expected 0 or more and less than q_heads = 4, got -1");
  EXPECT_EQ(message({0, 0, 5, 3}),
            "part.queries: expected a range within q_len = 7, got 3 from 5 on");
  EXPECT_EQ(message({0, 0, 8, 0}),
            "part.queries: expected a range within q_len = 7, got 0 from 8 on");
  EXPECT_EQ(message({0, 0, -1, 1}),
            "part.queries: expected a range within q_len = 7, got 1 from -1 on");
  EXPECT_EQ(message({0, 0, 0, 1}, {.dropout = {.probability = 0.5}}),
            "dropout: expected none in a part of a problem, got 0.5");
}

}  // namespace
}  // namespace fovea
