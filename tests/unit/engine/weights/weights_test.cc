// SPDX-License-Identifier: Apache-2.0
//
// Weights recomputed from lse, against the oracle's: tiles, scores, pooled tiles, rows, and the
// attention that keys receive.

#include "fovea/weights.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/mask.h"
#include "fovea/random.h"

#include "problem/cells.h"
#include "support/forward.h"
#include "support/limits.h"
#include "support/option_sets.h"
#include "support/random_problem.h"
#include "support/visible.h"

namespace fovea::test {
namespace {

/// A problem, the lse that the engine computes for it, and the oracle's weights.
struct Known {
  Known(const RandomProblem& given, const AttentionOptions& with)
      : problem(given),
        shape(shape_of(given.inputs())),
        options(with),
        lse(forward(given.inputs(), with).lse) {
    const RowList rows = all_rows(shape);
    exact = reference::attention_rows(given.inputs(), with, rows);
    const double scores = 2 * size_of_products(given.inputs(), with, rows) +
                          size_of_biases(shape, with) +
                          std::log(static_cast<double>(shape.kv_len) + 1.0);
    rounding = lse.dtype() == DType::kFloat64 ? 1e-12 : kRounding * (8 + 4 * scores);
  }

  WeightInputs inputs() const { return {problem.query, problem.key, lse}; }
  /// Returns the oracle's weights of a row.
  std::span<const double> weights(std::int64_t batch, std::int64_t head, std::int64_t query) const {
    const auto kv_len = static_cast<std::size_t>(shape.kv_len);
    return exact.weights.span<double>().subspan(row(batch, head, query) * kv_len, kv_len);
  }
  double weight(std::int64_t batch, std::int64_t head, std::int64_t query, std::int64_t key) const {
    return weights(batch, head, query)[static_cast<std::size_t>(key)];
  }
  bool visible(std::int64_t batch, std::int64_t head, std::int64_t query, std::int64_t key) const {
    ScorePosition place = exact.places[row(batch, head, query)];
    place.key = key;
    return is_visible(options, place);
  }
  std::size_t row(std::int64_t batch, std::int64_t head, std::int64_t query) const {
    return static_cast<std::size_t>((batch * shape.q_heads + head) * shape.q_len + query);
  }

  const RandomProblem& problem;
  ProblemShape shape;
  AttentionOptions options;
  Tensor lse;
  reference::Rows exact;
  double rounding = 0.0;
};

/// One per option set, computed once because the oracle is slow.
struct KnownSet {
  std::string name;
  Known known;
};
const std::vector<KnownSet>& known_sets() {
  static const RandomProblem problem = stored_problem(kOptionShape, 33, 20);
  static const std::vector<KnownSet> sets = [] {
    std::vector<KnownSet> made;
    for (const auto& [name, options] : option_sets())
      made.push_back({name, Known(problem, options)});
    return made;
  }();
  return sets;
}

Tensor weights_of(const Known& known, const WeightTile& tile) {
  Tensor weights(lse_type(known.problem.query.dtype()), {tile.queries, tile.keys});
  fill(weights, -77.0);
  attention_weights(known.inputs(), tile, known.options, weights);
  return weights;
}

const WeightTile kTiles[] = {
    {.batch = 0, .head = 0, .first_query = 0, .queries = 200, .first_key = 0, .keys = 700},
    {.batch = 1, .head = 5, .first_query = 7, .queries = 61, .first_key = 333, .keys = 101},
    {.batch = 1, .head = 2, .first_query = 199, .queries = 1, .first_key = 699, .keys = 1},
    {.batch = 0, .head = 3, .first_query = 3, .queries = 190, .first_key = 17, .keys = 640},
};

TEST(AttentionWeights, TilesMatchTheOracle) {
  for (const KnownSet& set : known_sets()) {
    SCOPED_TRACE(set.name);
    const Known& known = set.known;
    for (const WeightTile& tile : kTiles) {
      const Tensor weights = weights_of(known, tile);
      double worst = 0.0;
      for_each_index(weights.shape(), [&](const Index& at) {
        const double expected =
            known.weight(tile.batch, tile.head, tile.first_query + at[0], tile.first_key + at[1]);
        const double off = std::abs(weights.value(at) - expected);
        worst = std::max(worst, (off - 1e-37) / std::max(expected, 1e-30));
        if (expected == 0.0) {
          EXPECT_EQ(weights.value(at), 0.0);
        }
      });
      EXPECT_LE(worst, known.rounding);
    }
  }
}

TEST(AttentionWeights, PartOfATileHasTheSameBits) {
  for (const KnownSet& set : known_sets()) {
    SCOPED_TRACE(set.name);
    Known known = set.known;
    const Tensor whole = weights_of(known, kTiles[0]);
    RandomState random(5);
    for (int number = 0; number < 12; ++number) {
      WeightTile tile{.first_query = random.randint(0, 200), .first_key = random.randint(0, 700)};
      tile.queries = random.randint(1, 200 - tile.first_query + 1);
      tile.keys = random.randint(1, 700 - tile.first_key + 1);
      known.options.execution.threads = number % 3 + 1;
      const Tensor part = weights_of(known, tile);
      const TensorView same(whole.view().address({tile.first_query, tile.first_key}), whole.dtype(),
                            {tile.queries, tile.keys}, whole.view().strides());
      ASSERT_TRUE(same_bits(part, same)) << tile.first_query << " " << tile.first_key;
    }
  }
}

TEST(AttentionWeights, ScoresMatchTheSoftmaxInput) {
  const RandomProblem p = stored_problem(kOptionShape, 33, 20);
  for (const auto& [name, options] : option_sets()) {
    SCOPED_TRACE(name);
    const reference::Steps steps = reference::attention_steps(p.inputs(), options);
    const Tensor& expected = steps.masked_scores.defined()   ? steps.masked_scores
                             : steps.biased_scores.defined() ? steps.biased_scores
                                                             : steps.scaled_scores;
    const WeightTile& tile = kTiles[3];
    Tensor scores(DType::kFloat32, {tile.queries, tile.keys});
    attention_scores({p.query, p.key}, tile, options, scores);
    const double allowed = 1e-5 * (size_of(expected) + 1);
    for_each_index(scores.shape(), [&](const Index& at) {
      const double wanted =
          expected.value({tile.batch, tile.head, tile.first_query + at[0], tile.first_key + at[1]});
      if (std::isinf(wanted)) {
        ASSERT_EQ(scores.value(at), wanted) << to_string(at);
      } else {
        ASSERT_NEAR(scores.value(at), wanted, allowed) << to_string(at);
      }
    });
  }
}

TEST(AttentionWeights, ScoresOfFloat64NeedNoWeight) {
  const Tensor query = Tensor::from({1, 1, 1, 1}, std::vector<double>{1.0});
  const std::vector<double> scores{0.0, -100.0, -744.0, -800.0, -5000.0};
  const Tensor key = Tensor::from({1, 1, 5, 1}, scores);
  Tensor found(DType::kFloat64, {1, 5});
  attention_scores({query, key}, {.queries = 1, .keys = 5}, {.score = {.scale = 1.0}}, found);
  for (std::size_t j = 0; j < scores.size(); ++j) EXPECT_EQ(found.span<double>()[j], scores[j]);
}

/// The oracle's weights and visible pairs of a tile, looked up once for several pooled maps.
struct KnownTile {
  KnownTile(const Known& known, const WeightTile& tile) : keys(tile.keys) {
    for (std::int64_t i = tile.first_query; i < tile.first_query + tile.queries; ++i) {
      const auto row = known.weights(tile.batch, tile.head, i);
      for (std::int64_t j = tile.first_key; j < tile.first_key + tile.keys; ++j) {
        weights.push_back(row[static_cast<std::size_t>(j)]);
        visible.push_back(known.visible(tile.batch, tile.head, i, j) ? 1 : 0);
      }
    }
  }

  std::int64_t keys;
  std::vector<double> weights;  // queries x keys
  std::vector<char> visible;
};

/// Compares a pooled tile with the oracle: 17 x 23 cells, or cells of a given size if it is not 0.
void expect_pooled_tile(const Known& known, const WeightTile& tile, const KnownTile& exact,
                        Pool pool, std::int64_t side) {
  const std::int64_t rows =
      side > 0 ? (tile.queries - 1) / side + 1 : std::min<std::int64_t>(tile.queries, 17);
  const std::int64_t columns =
      side > 0 ? (tile.keys - 1) / side + 1 : std::min<std::int64_t>(tile.keys, 23);
  const CellDivision of_queries(tile.queries, rows, side);
  const CellDivision of_keys(tile.keys, columns, side);
  Tensor cells(DType::kFloat32, {rows, columns});
  Tensor pairs(DType::kInt64, {rows, columns});
  attention_weights(
      known.inputs(), tile, known.options,
      PooledMap{
          .cells = cells, .pairs = pairs, .pool = pool, .cell_queries = side, .cell_keys = side});
  for_each_index(cells.shape(), [&](const Index& at) {
    double sum = 0.0, most = 0.0;
    std::int64_t seen = 0;
    const std::int64_t first_key = of_keys.begin(at[1]), last_key = of_keys.begin(at[1] + 1);
    for (std::int64_t i = of_queries.begin(at[0]); i < of_queries.begin(at[0] + 1); ++i) {
      for (std::int64_t j = first_key; j < last_key; ++j) {
        const auto pair = static_cast<std::size_t>(i * exact.keys + j);
        sum += exact.weights[pair];
        most = std::max(most, exact.weights[pair]);
        seen += exact.visible[pair];
      }
    }
    ASSERT_EQ(pairs.value(at), static_cast<double>(seen)) << to_string(at);
    if (pool == Pool::kMean && seen == 0) {
      ASSERT_TRUE(std::isnan(cells.value(at)));
      return;
    }
    const double expected = pool == Pool::kMax    ? most
                            : pool == Pool::kMean ? sum / static_cast<double>(seen)
                                                  : sum;
    ASSERT_NEAR(cells.value(at), expected, 2 * known.rounding * expected + 1e-36);
  });
}

void expect_pooled_tiles(const std::vector<std::int64_t>& sides) {
  for (const KnownSet& set : known_sets()) {
    SCOPED_TRACE(set.name);
    for (const WeightTile& tile : kTiles) {
      const KnownTile exact(set.known, tile);
      for (const std::int64_t side : sides) {
        SCOPED_TRACE(side);
        for (const Pool pool : {Pool::kSum, Pool::kMean, Pool::kMax}) {
          expect_pooled_tile(set.known, tile, exact, pool, side);
        }
      }
    }
  }
}

TEST(AttentionWeights, PooledTilesMatchTheOracle) { expect_pooled_tiles({0}); }

TEST(AttentionWeights, PooledTilesOfAGivenCellSizeMatchTheOracle) {
  expect_pooled_tiles({1, 16, 100, 4096});
}

void expect_row(const Known& known, const WeightRow& row) {
  const ProblemShape shape = shape_of(known.problem.inputs());
  Tensor all(lse_type(known.problem.query.dtype()), {shape.q_heads, shape.kv_len});
  Tensor one(all.dtype(), {shape.kv_len});
  fill(all, -77.0);
  fill(one, -77.0);
  attention_row(known.inputs(), {.batch = row.batch, .query = row.query}, known.options, all);
  attention_row(known.inputs(), row, known.options, one);
  for_each_index(all.shape(), [&](const Index& at) {
    const double expected = known.weight(row.batch, at[0], row.query, at[1]);
    const bool seen = known.visible(row.batch, at[0], row.query, at[1]);
    const auto fits = [&](double weight) {
      return std::isnan(expected)
                 ? std::isnan(weight) == seen && (seen || weight == 0.0)
                 : std::abs(weight - expected) <= known.rounding * expected + 1e-37;
    };
    ASSERT_TRUE(fits(all.value(at))) << to_string(at) << all.value(at) << " " << expected;
    if (at[0] == row.head) {
      ASSERT_TRUE(fits(one.value({at[1]}))) << to_string(at);
    }
  });
}

TEST(AttentionWeights, RowsMatchTheOracle) {
  for (const KnownSet& set : known_sets()) {
    SCOPED_TRACE(set.name);
    expect_row(set.known, {.batch = 0, .head = 0, .query = 0});
    expect_row(set.known, {.batch = 1, .head = 5, .query = 123});
    expect_row(set.known, {.batch = 1, .head = 2, .query = 199});
  }
}

TEST(AttentionWeights, RowOfALongCache) {
  const RandomProblem p = stored_problem({1, 6, 2, 3, 30000}, 20, 4);
  for (const Mask& mask : {Mask(), window(12000, 3) & causal(), window(5, 0)}) {
    Known known(p, {.mask = mask});
    for (std::int64_t query = 0; query < 3; ++query) {
      expect_row(known, {.head = query, .query = query});
    }
    // The number of threads and the strides do not affect the bits.
    Tensor wide(DType::kFloat32, {6, 30001});
    const MutableTensorView strided(MutableTensorView(wide).data(), DType::kFloat32, {6, 30000},
                                    {30001, 1});
    Tensor plain(DType::kFloat32, {6, 30000});
    for (const int threads : {1, 2, 3, 8}) {
      known.options.execution.threads = threads;
      attention_row(known.inputs(), {.query = 1}, known.options, strided);
      if (threads == 1) attention_row(known.inputs(), {.query = 1}, known.options, plain);
      ASSERT_TRUE(same_bits(strided, plain)) << threads;
    }
  }
}

TEST(AttentionWeights, NanRowsAndRowsWithoutKeys) {
  RandomProblem p = stored_problem({1, 2, 1, 60, 300}, 8, 8);
  set_value(p.query, {0, 1, 17, 3}, std::nan(""));
  const Known known(p, {.mask = causal()});
  expect_row(known, {.head = 0, .query = 17});
  expect_row(known, {.head = 1, .query = 17});
  const Known hidden(p, {.mask = causal(), .alignment = Alignment::offset(-40)});
  expect_row(hidden, {.head = 0, .query = 39});
  expect_row(hidden, {.head = 0, .query = 40});
  const RandomProblem none = stored_problem({1, 2, 2, 3, 0}, 8, 8);
  const Known empty(none, {});
  Tensor row(DType::kFloat32, {2, 0});
  attention_row(empty.inputs(), {.query = 2}, {}, row);
  const RandomProblem headless = stored_problem({1, 0, 0, 3, 5}, 8, 8);
  const Tensor lse(lse_type(headless.query.dtype()), {1, 0, 3});
  Tensor rows(lse.dtype(), {0, 5});
  attention_row({headless.query, headless.key, lse}, {.query = 2}, {}, rows);
}

/// Buffers for all outputs of attention_received.
struct Received {
  explicit Received(const ProblemShape& shape, DType type = DType::kFloat32)
      : sum(type, {shape.batch, shape.q_heads, shape.kv_len}),
        largest(type, sum.shape()),
        recent(type, sum.shape()),
        histogram(DType::kInt64, {shape.batch, shape.q_heads, 12}) {}
  ReceivedAttention to() {
    return {.sum = sum,
            .largest = largest,
            .recent = recent,
            .recent_queries = 50,
            .histogram = histogram};
  }
  Tensor sum, largest, recent, histogram;
};

void expect_received(const Known& known, const Received& found) {
  const ProblemShape shape = shape_of(known.problem.inputs());
  for_each_index(found.sum.shape(), [&](const Index& at) {
    if (at[1] > 0 && at[1] < shape.q_heads - 1) return;  // two heads are enough
    double sum = 0.0, most = 0.0, recent = 0.0;
    for (std::int64_t q = 0; q < shape.q_len; ++q) {
      const double weight = known.weight(at[0], at[1], q, at[2]);
      sum += weight;
      most = std::max(most, weight);
      if (q >= shape.q_len - 50) recent += weight;
    }
    ASSERT_NEAR(found.sum.value(at), sum, 2 * known.rounding * sum + 1e-36) << to_string(at);
    ASSERT_NEAR(found.recent.value(at), recent, 2 * known.rounding * recent + 1e-36);
    ASSERT_NEAR(found.largest.value(at), most, known.rounding * most + 1e-36);
  });
  // A weight close to a power of two may fall in the adjacent bin.
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (const std::int64_t head : std::set<std::int64_t>{0, shape.q_heads - 1}) {
      std::vector<std::int64_t> expected(12), doubtful(13);
      for (std::int64_t q = 0; q < shape.q_len; ++q) {
        for (std::int64_t k = 0; k < shape.kv_len; ++k) {
          if (!known.visible(batch, head, q, k)) continue;
          const double size = -std::log2(std::max(known.weight(batch, head, q, k), 1e-300));
          ++expected[static_cast<std::size_t>(std::clamp(size, 0.0, 11.0))];
          const double border = std::round(size);
          if (std::abs(size - border) < 1e-4 && border <= 12) {
            ++doubtful[static_cast<std::size_t>(border)];
          }
        }
      }
      std::int64_t all = 0;
      for (std::size_t b = 0; b < 12; ++b) {
        const std::int64_t count =
            found.histogram.at<std::int64_t>({batch, head, static_cast<std::int64_t>(b)});
        EXPECT_LE(std::abs(count - expected[b]), doubtful[b] + doubtful[b + 1]) << b;
        all += count - expected[b];
      }
      EXPECT_EQ(all, 0);
    }
  }
}

TEST(AttentionWeights, ReceivedSums) {
  for (const KnownSet& set : known_sets()) {
    SCOPED_TRACE(set.name);
    Known known = set.known;
    Received one(kOptionShape);
    known.options.execution.threads = 1;
    attention_received(known.inputs(), known.options, one.to());
    expect_received(known, one);
    known.options.execution.threads = 3;
    Received three(kOptionShape);
    attention_received(known.inputs(), known.options, three.to());
    EXPECT_TRUE(same_bits(three.sum, one.sum));
    EXPECT_TRUE(same_bits(three.largest, one.largest));
    EXPECT_TRUE(same_bits(three.recent, one.recent));
    EXPECT_TRUE(same_bits(three.histogram, one.histogram));
    Received alone(kOptionShape);
    ReceivedAttention recent_only = alone.to();
    recent_only.sum = recent_only.largest = recent_only.histogram = {};
    attention_received(known.inputs(), known.options, recent_only);
    EXPECT_LE(max_difference(alone.recent, one.recent), known.rounding * size_of(one.recent));
  }
}

TEST(AttentionWeights, Float64) {
  const RandomProblem p({1, 2, 1, 60, 90}, 8, 4);
  Tensor bias(DType::kFloat64, {60, 90});
  for_each_index(bias.shape(), [&](const Index& at) {
    bias.at<double>(at) = at[1] % 7 == 2 ? -kInfinity : 0.1 * static_cast<double>(at[0] % 4);
  });
  const Known known(p, {.mask = window(30, 5), .score = {.bias = bias}});
  const WeightTile tile{.head = 1, .first_query = 10, .queries = 40, .first_key = 20, .keys = 50};
  const Tensor weights = weights_of(known, tile);
  for_each_index(weights.shape(), [&](const Index& at) {
    ASSERT_NEAR(weights.value(at), known.weight(0, 1, 10 + at[0], 20 + at[1]), 1e-14);
  });
  Received found({1, 2, 1, 60, 90}, DType::kFloat64);
  attention_received(known.inputs(), known.options, found.to());
  expect_received(known, found);
  Tensor cells(DType::kFloat64, {5, 6});
  attention_weights(known.inputs(), tile, known.options, PooledMap{.cells = cells});
  expect_row(known, {.head = 1, .query = 31});
  double sum = 0.0;
  for (const double cell : cells.span<double>()) sum += cell;
  double expected = 0.0;
  for (const double weight : weights.span<double>()) expected += weight;
  EXPECT_NEAR(sum, expected, 1e-12);
}

TEST(AttentionWeights, NanRowsAreNanWhereVisible) {
  RandomProblem p = stored_problem({1, 1, 1, 60, 300}, 8, 8);
  set_value(p.query, {0, 0, 17, 3}, std::nan(""));
  const Known known(p, {.mask = causal()});
  const Tensor weights =
      weights_of(known, {.first_query = 10, .queries = 20, .first_key = 200, .keys = 100});
  for_each_index(weights.shape(), [&](const Index& at) {
    const bool seen = known.visible(0, 0, 10 + at[0], 200 + at[1]);
    ASSERT_EQ(std::isnan(weights.value(at)), at[0] == 7 && seen) << to_string(at);
  });
  Received found(shape_of(p.inputs()));
  attention_received(known.inputs(), known.options, found.to());
  for (std::int64_t key = 0; key < 300; ++key) {
    const bool seen = known.visible(0, 0, 17, key);
    ASSERT_EQ(std::isnan(found.sum.value({0, 0, key})), seen) << key;
    ASSERT_EQ(std::isnan(found.largest.value({0, 0, key})), seen) << key;
  }
}

}  // namespace
}  // namespace fovea::test
