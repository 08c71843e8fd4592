// SPDX-License-Identifier: Apache-2.0
//
// Maps, against sums, means and maxima of the oracle's weights, for one head and for heads pooled
// together.

#include "fovea/map.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/error.h"
#include "fovea/random.h"

#include "engine/weights/head_names.h"
#include "problem/cells.h"
#include "reference/lenses.h"
#include "support/exactness.h"
#include "support/forward.h"
#include "support/limits.h"
#include "support/message_of.h"
#include "support/option_sets.h"
#include "support/random_problem.h"
#include "support/visible.h"

namespace fovea::test {
namespace {

/// The oracle's weights of one batch item.
class Oracle {
 public:
  Oracle(const reference::Inputs& in, const AttentionOptions& options, std::int64_t batch)
      : shape_(shape_of(in)), options_(options) {
    std::vector<reference::Row> rows;
    for (std::int64_t head = 0; head < shape_.q_heads; ++head) {
      for (std::int64_t q = 0; q < shape_.q_len; ++q) rows.push_back({batch, head, q});
    }
    found_ = reference::attention_rows(in, options, rows);
    const double scores = 2 * size_of_products(in, options, rows) + size_of_biases(shape_, options);
    rounding_ =
        in.query.dtype() == DType::kFloat64
            ? 1e-12
            : kRounding * (8 + 4 * scores + 2 * std::sqrt(static_cast<double>(shape_.kv_len)));
  }

  double rounding() const { return rounding_; }
  const ProblemShape& shape() const { return shape_; }

  double weight(std::int64_t head, std::int64_t query, std::int64_t key) const {
    return found_.weights.at<double>({head * shape_.q_len + query, key});
  }
  bool sees(std::int64_t head, std::int64_t query, std::int64_t key) const {
    ScorePosition at = place(head, query);
    at.key = key;
    return is_visible(options_, at);
  }
  reference::RowNumbers row(std::int64_t head, std::int64_t query) const {
    const auto keys = static_cast<std::size_t>(shape_.kv_len);
    const auto number = static_cast<std::size_t>(head * shape_.q_len + query);
    return reference::row_numbers(found_.weights.span<double>().subspan(number * keys, keys),
                                  place(head, query));
  }

  /// Returns a cell of one head, and its number of visible pairs.
  std::pair<double, std::int64_t> cell(std::int64_t head, const IndexRange& queries,
                                       const IndexRange& keys, Pool pool) const {
    double sum = 0.0, most = 0.0;
    std::int64_t pairs = 0;
    for (std::int64_t q = queries.begin; q < queries.end; ++q) {
      for (std::int64_t k = keys.begin; k < keys.end; ++k) {
        sum += weight(head, q, k);
        most = std::max(most, weight(head, q, k));
        pairs += sees(head, q, k) ? 1 : 0;
      }
    }
    if (pool == Pool::kMean) return {pairs == 0 ? kNan : sum / static_cast<double>(pairs), pairs};
    return {pool == Pool::kMax ? most : sum, pairs};
  }

 private:
  const ScorePosition& place(std::int64_t head, std::int64_t query) const {
    return found_.places[static_cast<std::size_t>(head * shape_.q_len + query)];
  }

  ProblemShape shape_;
  AttentionOptions options_;
  reference::Rows found_;
  double rounding_ = 0.0;
};

/// Pools the values of all heads that have a value. Returns NaN if no head has one.
double together(Pool how, const std::vector<double>& numbers) {
  if (numbers.empty()) return kNan;
  if (how == Pool::kMax) return *std::ranges::max_element(numbers);
  double sum = 0.0;
  for (const double number : numbers) sum += number;
  return sum / static_cast<double>(numbers.size());
}

void expect_near(double found, double expected, double allowed) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(found)) << found;
  } else {
    EXPECT_NEAR(found, expected, allowed);
  }
}

void expect_cells(const Oracle& oracle, const MapRequest& request, const AttentionMap& found) {
  const MapCells& map = found.map;
  ASSERT_EQ(map.cells.shape(), (Shape{request.rows, request.columns}));
  ASSERT_EQ(map.pairs.shape(), map.cells.shape());
  EXPECT_EQ(map.rows(), request.rows);
  EXPECT_EQ(map.columns(), request.columns);
  EXPECT_EQ(map.each_query(), request.rows == request.queries.size());
  EXPECT_EQ(map.each_key(), request.columns == request.keys.size());
  const std::int64_t first = request.heads ? 0 : request.head;
  const std::int64_t end = request.heads ? oracle.shape().q_heads : first + 1;
  for_each_index(map.cells.shape(), [&](const Index& at) {
    const IndexRange queries = map.queries_of(at[0]), keys = map.keys_of(at[1]);
    EXPECT_EQ(queries.begin,
              request.queries.begin + cell_begin(at[0], request.queries.size(), request.rows));
    EXPECT_EQ(keys.end,
              request.keys.begin + cell_begin(at[1] + 1, request.keys.size(), request.columns));
    std::vector<double> numbers;
    std::int64_t pairs = 0;
    for (std::int64_t head = first; head < end; ++head) {
      const auto [cell, own] = oracle.cell(head, queries, keys, request.pool);
      pairs += own;
      if (own > 0 || request.pool != Pool::kMean) numbers.push_back(cell);
    }
    SCOPED_TRACE(testing::Message() << "cell " << at[0] << ", " << at[1]);
    const double expected = together(request.heads.value_or(Pool::kMean), numbers);
    EXPECT_EQ(map.pairs.at<std::int64_t>(at), pairs);
    EXPECT_EQ(map.masked(at[0], at[1]), pairs == 0);
    expect_near(map.value(at[0], at[1]), expected,
                2 * oracle.rounding() * std::abs(expected) + 1e-37);
  });
}

void expect_rows(const Oracle& oracle, const MapRequest& request, const LensBuffers& found) {
  ASSERT_EQ(found.entropy.shape(), (Shape{1, 1, request.queries.size()}));
  const std::int64_t first = request.heads ? 0 : request.head;
  const std::int64_t end = request.heads ? oracle.shape().q_heads : first + 1;
  const Pool how = request.heads.value_or(Pool::kMax);
  for (std::int64_t i = 0; i < request.queries.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "query " << i);
    std::vector<double> entropy, maximum, distance, variance, first_key;
    for (std::int64_t head = first; head < end; ++head) {
      const reference::RowNumbers row = oracle.row(head, request.queries.begin + i);
      if (row.maximum_key < 0) continue;
      entropy.push_back(row.entropy);
      maximum.push_back(row.maximum);
      distance.push_back(row.mean_distance);
      variance.push_back(row.distance_variance);
      first_key.push_back(row.first_key);
    }
    const bool none = maximum.empty();
    const Index at{0, 0, i};
    const double rounding = oracle.rounding(), keys = static_cast<double>(oracle.shape().kv_len);
    const auto expect = [&](const Tensor& numbers, const std::vector<double>& expected,
                            double without, double allowed) {
      expect_near(numbers.value(at), none ? without : together(how, expected), allowed);
    };
    expect(found.entropy, entropy, 0.0, rounding * 8);
    expect(found.maximum, maximum, 0.0, rounding * 2);
    expect(found.mean_distance, distance, kNan, rounding * keys * 2);
    expect(found.distance_variance, variance, kNan, rounding * keys * keys * 2);
    expect(found.first_key, first_key, 0.0, rounding * 2);
    const std::int64_t key = found.maximum_key.at<std::int64_t>(at);
    if (none || request.heads == Pool::kMean) {
      EXPECT_EQ(key, -1);
      continue;
    }
    double largest = 0.0;
    for (std::int64_t head = first; head < end; ++head) {
      largest = std::max(largest, oracle.weight(head, request.queries.begin + i, key));
    }
    EXPECT_NEAR(largest, together(Pool::kMax, maximum), rounding * 2);
  }
}

/// Returns the map of a problem; `lse` is computed if it is undefined.
AttentionMap map_of(const RandomProblem& p, const MapRequest& request,
                    const AttentionOptions& options, const TensorView& lse = {}) {
  return attention_map({.query = p.query, .key = p.key, .lse = lse}, request, options);
}

constexpr ProblemShape kShape{2, 6, 3, 40, 70};

/// Requests for the whole matrix, some queries, some keys, and a rectangle.
std::vector<MapRequest> requests() {
  return {{.batch = 1, .head = 2, .queries = {0, 40}, .keys = {0, 70}, .rows = 7, .columns = 9},
          {.head = 5, .queries = {11, 30}, .keys = {0, 70}, .rows = 19, .columns = 70},
          {.batch = 1, .queries = {0, 40}, .keys = {60, 70}, .rows = 1, .columns = 3},
          {.head = 1, .queries = {3, 33}, .keys = {5, 50}, .rows = 4, .columns = 45}};
}

TEST(AttentionMapTest, OneHeadUnderEveryOptionSet) {
  for (const auto& [name, options] : option_sets(kShape)) {
    SCOPED_TRACE(name);
    const RandomProblem p = stored_problem(kShape, 16, 8);
    const Oracle oracles[] = {Oracle(p.inputs(), options, 0), Oracle(p.inputs(), options, 1)};
    for (MapRequest request : requests()) {
      const Oracle& oracle = oracles[request.batch];
      for (const Pool pool : {Pool::kSum, Pool::kMean, Pool::kMax}) {
        request.pool = pool;
        request.statistics = pool == Pool::kMax;
        const AttentionMap found = map_of(p, request, options);
        EXPECT_EQ(found.map.cells.dtype(), DType::kFloat32);
        expect_cells(oracle, request, found);
        if (request.statistics) expect_rows(oracle, request, found.statistics);
      }
    }
  }
}

TEST(AttentionMapTest, PooledHeads) {
  const RandomProblem p = stored_problem(kShape, 16, 8);
  // Query 3 sees no key in any head, query 5 none in head 2; some cells are masked in some heads.
  Tensor open(DType::kBool, {6, 40, 70});
  for_each_index(open.shape(), [&](const Index& at) {
    const bool hidden = at[1] == 3 || (at[0] == 2 && at[1] == 5) ||
                        (at[0] + at[1] + at[2]) % 4 == 0 || (at[0] < 4 && at[2] < 6);
    set_value(open, at, hidden ? 0.0 : 1.0);
  });
  for (const AttentionOptions& options :
       {AttentionOptions{.mask = dense(open)}, AttentionOptions{.mask = causal()}}) {
    const Oracle oracles[] = {Oracle(p.inputs(), options, 0), Oracle(p.inputs(), options, 1)};
    for (MapRequest request : requests()) {
      for (const Pool heads : {Pool::kMean, Pool::kMax}) {
        for (const Pool pool : {Pool::kSum, Pool::kMean, Pool::kMax}) {
          SCOPED_TRACE(testing::Message() << pool_name(heads) << " of " << pool_name(pool));
          request.heads = heads;
          request.pool = pool;
          request.statistics = true;
          const AttentionMap found = map_of(p, request, options);
          EXPECT_EQ(found.map.cells.dtype(), DType::kFloat64);
          expect_cells(oracles[request.batch], request, found);
          expect_rows(oracles[request.batch], request, found.statistics);
        }
      }
    }
  }
}

TEST(AttentionMapTest, Float64) {
  const RandomProblem p({1, 2, 1, 9, 12}, 4, 4);
  const AttentionOptions options = {.mask = causal(), .score = {.sinks = {0.5, -1.0}}};
  const Oracle oracle(p.inputs(), options, 0);
  for (const std::optional<Pool> heads : {std::optional<Pool>(), std::optional(Pool::kMean)}) {
    for (const IndexRange& keys : {IndexRange{0, 12}, IndexRange{2, 11}}) {
      const MapRequest request = {.head = heads ? 0 : 1,
                                  .heads = heads,
                                  .queries = {1, 9},
                                  .keys = keys,
                                  .rows = 3,
                                  .columns = 4,
                                  .statistics = true};
      const AttentionMap found = map_of(p, request, options);
      EXPECT_EQ(found.map.cells.dtype(), DType::kFloat64);
      expect_cells(oracle, request, found);
      expect_rows(oracle, request, found.statistics);
    }
  }
}

TEST(AttentionMapTest, TopKeysMatchTheFusedPass) {
  const RandomProblem p = stored_problem({1, 2, 2, 30, 50}, 16, 8);
  LensBuffers room({1, 2, 2, 30, 50}, p.query.dtype(), {.top = 5});
  const Lenses lenses = room.lenses();
  attention_forward(p.query, p.key, p.value, {.mask = causal()}, {.lenses = &lenses});
  const AttentionMap found =
      map_of(p, {.head = 1, .queries = {10, 14}, .keys = {3, 9}, .rows = 2, .columns = 2, .top = 5},
             {.mask = causal()});
  ASSERT_EQ(found.statistics.top_keys.shape(), (Shape{1, 1, 4, 5}));
  EXPECT_FALSE(found.statistics.entropy.defined());
  EXPECT_FALSE(found.statistics.cells.defined());
  // Few queries add products in another order, so the score and the lse of a weight may differ.
  const double score = size_of_products(p.inputs(), {}, all_rows(shape_of(p.inputs())));
  const double allowed = 4 * kRounding * (1 + score);
  for_each_index(found.statistics.top_keys.shape(), [&](const Index& at) {
    const Index whole{0, 1, 10 + at[2], at[3]};
    EXPECT_EQ(found.statistics.top_keys.value(at), room.top_keys.value(whole));
    const double weight = room.top_weights.value(whole);
    EXPECT_NEAR(found.statistics.top_weights.value(at), weight, allowed * weight);
  });
}

TEST(AttentionMapTest, GivenLse) {
  const RandomProblem p = stored_problem(kShape, 16, 8);
  const AttentionOptions options = {.mask = window(20, 3)};
  Tensor lse(DType::kFloat32, {2, 6, 40});
  attention_forward(p.query, p.key, p.value, options, {.lse = lse});
  const Oracle oracles[] = {Oracle(p.inputs(), options, 0), Oracle(p.inputs(), options, 1)};
  for (MapRequest request : requests()) {
    for (const bool heads : {false, true}) {
      if (heads) request.heads = Pool::kMax;
      expect_cells(oracles[request.batch], request, map_of(p, request, options, lse));
    }
  }
  // The given lse is used: another lse scales the weights.
  Tensor more = lse;
  for (float& number : more.span<float>()) number += std::log(2.0F);
  const MapRequest request = requests().front();
  const AttentionMap whole = map_of(p, request, options, lse);
  const AttentionMap half = map_of(p, request, options, more);
  EXPECT_NEAR(half.map.value(3, 4), whole.map.value(3, 4) / 2, 1e-6);
}

TEST(AttentionMapTest, AnyNumberOfThreadsGivesTheSameBits) {
  const RandomProblem p = stored_problem(kShape, 16, 8);
  for (MapRequest request : requests()) {
    for (const bool heads : {false, true}) {
      request.statistics = true;
      if (heads) request.heads = Pool::kMean;
      AttentionOptions options = {.mask = causal()};
      options.execution.threads = 1;
      const AttentionMap one = map_of(p, request, options);
      for (const int threads : {2, 3, 8}) {
        options.execution.threads = threads;
        const AttentionMap more = map_of(p, request, options);
        EXPECT_TRUE(same_bits(one.map.cells, more.map.cells)) << threads;
        EXPECT_TRUE(same_bits(one.map.pairs, more.map.pairs)) << threads;
        EXPECT_TRUE(same_bits(one.statistics.entropy, more.statistics.entropy)) << threads;
      }
    }
  }
}

TEST(AttentionMapTest, PooledHeadsReportOneProgress) {
  const RandomProblem p = stored_problem(kShape, 16, 8);
  MapRequest request = requests().front();
  request.heads = Pool::kMean;
  std::int64_t last = -1, steps = 0, of = 0;
  AttentionOptions options;
  options.execution.progress = [&](std::int64_t done, std::int64_t total) {
    EXPECT_GE(done, last);
    EXPECT_LE(done, total);
    last = done;
    of = total;
    ++steps;
  };
  map_of(p, request, options);
  EXPECT_EQ(last, of);
  EXPECT_GE(steps, 6);
}

TEST(AttentionMapTest, Stops) {
  const RandomProblem p = stored_problem(kShape, 16, 8);
  std::stop_source source;
  source.request_stop();
  AttentionOptions options;
  options.execution.stop = source.get_token();
  EXPECT_THROW(map_of(p, requests().front(), options), Stopped);
}

TEST(AttentionMapTest, Errors) {
  const RandomProblem p = stored_problem({2, 6, 3, 40, 70}, 16, 8);
  const auto message = [&](const std::function<void(MapRequest&, AttentionOptions&)>& change) {
    MapRequest request = requests().front();
    AttentionOptions options;
    change(request, options);
    return message_of([&] { map_of(p, request, options); });
  };
  const std::vector<std::pair<std::string, std::function<void(MapRequest&, AttentionOptions&)>>>
      mistakes = {
          {"request.batch: expected 0 or more and less than batch = 2, got 2",
           [](auto& request, auto&) { request.batch = 2; }},
          {"request.head: expected 0 or more and less than q_heads = 6, got -1",
           [](auto& request, auto&) { request.head = -1; }},
          {"request.heads: expected mean or max, got sum",
           [](auto& request, auto&) { request.heads = Pool::kSum; }},
          {"request.queries: expected a range within q_len = 40 of at least 1, got 4 to before 4",
           [](auto& request, auto&) {
             request.queries = {4, 4};
           }},
          {"request.keys: expected a range within kv_len = 70 of at least 1, got 0 to before 71",
           [](auto& request, auto&) {
             request.keys = {0, 71};
           }},
          {"request.rows: expected 1 to 40, as many as there are queries, got 41",
           [](auto& request, auto&) { request.rows = 41; }},
          {"request.columns: expected 1 to 70, as many as there are keys, got 0",
           [](auto& request, auto&) { request.columns = 0; }},
          {"request.top: expected 0 to 64, got 65", [](auto& request, auto&) { request.top = 65; }},
          {"request.top: expected 0 when heads are combined, got 2",
           [](auto& request, auto&) {
             request.heads = Pool::kMax;
             request.top = 2;
           }},
          {"dropout: expected none for recomputed weights, got 0.5",
           [](auto&, auto& options) { options.dropout.probability = 0.5; }},
          {"key_lengths: expected lengths from 0 to kv_len = 70, got 71",
           [](auto&, auto& options) { options.mask = key_lengths({71}); }}};
  for (const auto& [expected, change] : mistakes) EXPECT_EQ(message(change), expected);
  EXPECT_EQ(message_of([&] {
              map_of(p, requests().front(), {}, Tensor(DType::kFloat32, {2, 6, 39}));
            }),
            "lse: expected [batch, q_heads, q_len] = [2, 6, 40], got [2, 6, 39]");
}

TEST(PoolHeadsTest, MeansAndMaximaOfHeadsWithVisiblePairs) {
  const Tensor cells = Tensor::from<float>({2, 1, 3}, std::vector<float>{1, 2, 3, 5, 4, NAN});
  const Tensor pairs =
      Tensor::from<std::int64_t>({2, 1, 3}, std::vector<std::int64_t>{1, 0, 0, 1, 2, 0});
  const Tensor means = pool_heads(cells, {}, Pool::kMean);
  EXPECT_EQ(means.dtype(), DType::kFloat64);
  EXPECT_EQ(means.value({0, 0}), 3.0);
  EXPECT_TRUE(std::isnan(means.value({0, 2})));
  EXPECT_EQ(pool_heads(cells, {}, Pool::kMax).value({0, 1}), 4.0);
  const Tensor counted = pool_heads(cells, pairs, Pool::kMean);
  EXPECT_EQ(counted.value({0, 0}), 3.0);
  EXPECT_EQ(counted.value({0, 1}), 4.0);
  EXPECT_TRUE(std::isnan(counted.value({0, 2})));  // no head has visible pairs
  EXPECT_EQ(message_of([&] { pool_heads(cells, {}, Pool::kSum); }),
            "how: expected mean or max, got sum");
  EXPECT_EQ(message_of([&] { pool_heads(cells.view()[0], {}, Pool::kMax); }),
            "cells: expected floats [heads, rows, columns] of at least one head, got [1, 3]");
  EXPECT_EQ(message_of([&] { pool_heads(cells, cells, Pool::kMax); }),
            "pairs: expected int64 [2, 1, 3] as cells have, got float32 [2, 1, 3]");
}

TEST(HeadNames, FollowFromTheSummary) {
  using engine::HeadTold;
  HeadTold head{.numbers = {1.0, 2.0, 0.3, 0.0, 0.1, 0.2, 0.1, 0.0, 0.2}};
  EXPECT_EQ(head.name(), "");
  EXPECT_EQ(head.evenness(), 0.5);
  EXPECT_EQ(head.largest_share(), 0.2);
  const auto named = [&](engine::HeadPlace place, double number) {
    HeadTold other = head;
    other.numbers[place] = number;
    return std::string(other.name());
  };
  EXPECT_EQ(named(engine::kEntropy, 1.96), "uniform");
  EXPECT_EQ(named(engine::kPreviousKey, 0.5), "previous token");
  EXPECT_EQ(named(engine::kOwnKey, 0.5), "own token");
  EXPECT_EQ(named(engine::kNextKey, 0.5), "next token");
  EXPECT_EQ(named(engine::kFirstKey, 0.5), "sink");
  EXPECT_EQ(named(engine::kBlockDiagonal, 0.5), "local blocks");
  EXPECT_EQ(named(engine::kMaximum, 0.8), "one key");
  head.duplicate = head.induction = 0.5;
  head.repeated = 4;
  EXPECT_EQ(named(engine::kMaximum, 0.8), "induction");
  EXPECT_EQ(named(engine::kFirstKey, 0.5), "sink");
  head.duplicate = 0.6;
  EXPECT_EQ(head.name(), "duplicate token");
  head.repeated = 3;
  EXPECT_EQ(named(engine::kMaximum, 0.8), "one key");
  head.repeated = 4;
  head.duplicate = head.induction = 0.49;
  EXPECT_EQ(head.name(), "");
  head.numbers[engine::kEvenEntropy] = 0.0;
  EXPECT_TRUE(std::isnan(head.evenness()));
}

}  // namespace
}  // namespace fovea::test
