// SPDX-License-Identifier: Apache-2.0
//
// Tiles, cells, rows, columns and summaries against the float64 reference: lengths that no cell
// size divides, masks, heads that share keys, rows without keys, NaN.

#include "view/explorer/explorer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/analysis.h"
#include "fovea/attention.h"
#include "fovea/error.h"
#include "fovea/heads.h"
#include "fovea/random.h"
#include "fovea/recording.h"
#include "fovea/reference.h"
#include "fovea/weights.h"

#include "problem/part.h"
#include "recording/head_statistics.h"
#include "support/explore.h"
#include "support/forward.h"
#include "support/random_problem.h"
#include "support/recorded.h"
#include "support/tensor_files.h"
#include "view/explorer/pyramid.h"

namespace fovea::test {
namespace {

using view::cells_of;
using view::Explorer;
using view::Frame;
using view::HeadPlace;
using view::kTileSide;
using view::TilePlace;

/// Half a code, and the rounding of the engine's float32 weights: scores are below 100.
constexpr double kCellError = 3.5e-4 + 400 * kRounding;

/// The oracle's weights of one head.
class HeadWeights {
 public:
  HeadWeights(const reference::Inputs& in, const AttentionOptions& options, std::int64_t batch,
              std::int64_t head)
      : queries_(in.query.extent(2)), keys_(in.key.extent(2)) {
    constexpr std::int64_t kTogether = 256;
    weights_.reserve(static_cast<std::size_t>(queries_ * keys_));
    visible_.reserve(static_cast<std::size_t>(queries_ * keys_));
    for (std::int64_t first = 0; first < queries_; first += kTogether) {
      std::vector<reference::Row> rows;
      for (std::int64_t q = first; q < std::min(first + kTogether, queries_); ++q) {
        rows.push_back({batch, head, q});
      }
      const reference::Rows found = reference::attention_rows(in, options, rows);
      const auto weights = found.weights.span<double>();
      weights_.insert(weights_.end(), weights.begin(), weights.end());
      std::vector<std::uint8_t> visible(static_cast<std::size_t>(keys_));
      for (ScorePosition place : found.places) {
        place.key = 0;
        options.mask.fill(place, keys_, visible.data());
        visible_.insert(visible_.end(), visible.begin(), visible.end());
      }
    }
  }

  std::int64_t queries() const { return queries_; }
  std::int64_t keys() const { return keys_; }
  double weight(std::int64_t query, std::int64_t key) const {
    return weights_[static_cast<std::size_t>(query * keys_ + key)];
  }
  bool visible(std::int64_t query, std::int64_t key) const {
    return visible_[static_cast<std::size_t>(query * keys_ + key)] != 0;
  }

  /// Returns the largest or mean weight of a cell; nothing if the mask hides all of it.
  std::optional<double> cell(Pool pool, int level, std::int64_t row, std::int64_t column) const {
    double sum = 0.0, most = 0.0;
    std::int64_t pairs = 0;
    for (std::int64_t q = row << level; q < std::min((row + 1) << level, queries_); ++q) {
      for (std::int64_t k = column << level; k < std::min((column + 1) << level, keys_); ++k) {
        if (!visible(q, k)) continue;
        ++pairs;
        sum += weight(q, k);
        if (!(weight(q, k) <= most)) most = std::isnan(most) ? most : weight(q, k);
      }
    }
    if (pairs == 0) return std::nullopt;
    return pool == Pool::kMax ? most : sum / static_cast<double>(pairs);
  }

 private:
  std::int64_t queries_, keys_;
  std::vector<double> weights_;
  std::vector<std::uint8_t> visible_;
};

/// Returns whether `code` is that of a cell's exact weight, or of a hidden cell.
testing::AssertionResult is_code_of(view::Code code, const std::optional<double>& exact) {
  const auto matches = [&] {
    if (!exact) return code == view::kHiddenCode;
    if (code == view::kHiddenCode) return false;
    if (std::isnan(*exact)) return code == view::kNanCode;
    if (*exact < std::exp2(-64.0)) return code == view::kZeroCode || code == view::kMinCode;
    return std::abs(view::decode_weight(code) - *exact) <= kCellError * *exact;
  };
  if (matches()) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "expected the code of " << (exact ? testing::PrintToString(*exact) : "a hidden cell")
         << ", got " << code << " (" << view::decode_weight(code) << ")";
}

/// Compares all cells of a tile with the oracle.
void expect_tile(Explorer& explorer, const HeadPlace& head, const TilePlace& tile,
                 const HeadWeights& exact) {
  SCOPED_TRACE(testing::Message() << pool_name(tile.reduce) << ", level " << tile.level << ", tile "
                                  << tile.x << ", " << tile.y);
  const Frame frame = get_tile(explorer, head, tile);
  const std::int64_t first_row = tile.y * kTileSide, first_column = tile.x * kTileSide;
  const std::int64_t rows = std::min(kTileSide, cells_of(exact.queries(), tile.level) - first_row);
  const std::int64_t columns =
      std::min(kTileSide, cells_of(exact.keys(), tile.level) - first_column);
  ASSERT_EQ(frame.header.rows, rows);
  ASSERT_EQ(frame.header.columns, columns);
  EXPECT_EQ(frame.header.reduce, tile.reduce);
  EXPECT_EQ(frame.header.level, tile.level);
  EXPECT_EQ(frame.header.x, tile.x);
  EXPECT_EQ(frame.header.y, tile.y);
  std::int64_t hidden = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto cell = exact.cell(tile.reduce, tile.level, first_row + r, first_column + c);
      const view::Code code = frame.codes[static_cast<std::size_t>(r * columns + c)];
      ASSERT_TRUE(is_code_of(code, cell)) << "cell " << r << ", " << c;
      hidden += cell ? 0 : 1;
    }
  }
  const int flags = frame.header.flags;
  EXPECT_EQ((flags & view::frame_flags::kHasHidden) != 0, hidden > 0);
  EXPECT_EQ((flags & view::frame_flags::kAllHidden) != 0, hidden == rows * columns);
}

/// Compares the first, the last and a middle tile of each row and column of tiles.
void expect_tiles(Explorer& explorer, const HeadPlace& head, const std::vector<int>& levels,
                  const HeadWeights& exact) {
  const view::HeadStatus status = explorer.status(head);
  for (const int level : levels) {
    if (level >= status.levels) continue;
    const auto places = [&](std::int64_t length) {
      const std::int64_t last = (cells_of(length, level) - 1) / kTileSide;
      return std::set<std::int64_t>{0, last / 2, last};
    };
    for (const Pool reduce : {Pool::kMax, Pool::kMean}) {
      if (reduce == Pool::kMean && level >= status.mean_levels) continue;
      for (const std::int64_t y : places(exact.queries())) {
        for (const std::int64_t x : places(exact.keys())) {
          expect_tile(explorer, head, {reduce, level, x, y}, exact);
        }
      }
    }
  }
}

Tensor document_ids(std::int64_t count, std::int64_t length) {
  Tensor ids(DType::kInt64, {count});
  for (std::int64_t i = 0; i < count; ++i)
    ids.span<std::int64_t>()[static_cast<std::size_t>(i)] = i / length;
  return ids;
}

Tensor random_mask(std::int64_t queries, std::int64_t keys) {
  Tensor mask(DType::kBool, {queries, keys});
  RandomState random(9);
  for (bool& visible : mask.span<bool>()) visible = random.rand() < 0.02;
  return mask;
}

TEST(ViewExplorer, TilesMatchTheReference) {
  constexpr std::int64_t kQueries = 4099, kKeys = 4001;
  const RandomProblem p = stored_problem({1, 1, 1, kQueries, kKeys}, 8, 1);
  const std::map<std::string, Mask> masks = {
      {"causal", causal()},
      {"window", window(300, 0)},
      {"documents", documents(document_ids(kQueries, 700), document_ids(kKeys, 650))},
      {"dense", dense(random_mask(kQueries, kKeys))},
      {"all", {}}};
  for (const auto& [name, mask] : masks) {
    SCOPED_TRACE(name);
    const AttentionOptions options = {.mask = mask};
    const HeadWeights exact(p.inputs(), options, 0, 0);
    Explorer explorer(inputs_of(input_of(p.query, p.key, options)), {});
    const view::HeadStatus status = explorer.status({});
    EXPECT_EQ(status.levels, 6);
    EXPECT_EQ(status.base_level, 4);
    expect_tiles(explorer, {}, {0, 1, 4, 5}, exact);
  }
}

TEST(ViewExplorer, KnownLseGivesTheSameTiles) {
  const RandomProblem p = stored_problem({1, 1, 1, 4099, 4001}, 8, 1);
  const AttentionOptions options = {.mask = causal()};
  const HeadWeights exact(p.inputs(), options, 0, 0);
  const Tensor lse = forward(p.inputs(), options).lse;
  Explorer explorer(inputs_of(input_of(p.query, p.key, options, lse)), {});
  EXPECT_TRUE(explorer.status({}).lse_known);
  expect_tiles(explorer, {}, {3, 4}, exact);
}

TEST(ViewExplorer, LevelSevenOfLongRows) {
  const RandomProblem p = stored_problem({1, 1, 1, 300, 33'000}, 4, 1);
  for (const Mask& mask : {Mask(), causal(), window(1000, 0)}) {
    const AttentionOptions options = {.mask = mask};
    const HeadWeights exact(p.inputs(), options, 0, 0);
    Explorer explorer(inputs_of(input_of(p.query, p.key, options)), {});
    EXPECT_EQ(explorer.status({}).levels, 9);
    expect_tiles(explorer, {}, {2, 7, 8}, exact);
  }
}

TEST(ViewExplorer, ASmallBudgetRaisesTheBaseLevel) {
  const RandomProblem p = stored_problem({1, 1, 1, 3200, 33'000}, 2, 1);
  const HeadWeights exact(p.inputs(), {}, 0, 0);
  // Half of it is for cells of 4 bytes, and those of level 4 and above take 2.2 MB.
  Explorer explorer(inputs_of(input_of(p.query, p.key, {})), {.memory = std::int64_t{4} << 20});
  const view::HeadStatus status = explorer.status({});
  EXPECT_EQ(status.base_level, 5);
  EXPECT_EQ(status.mean_levels, 5);
  expect_tiles(explorer, {}, {4, 5, 8}, exact);
}

TEST(ViewExplorer, HeadsThatShareKeysAndBatchItems) {
  const RandomProblem p = stored_problem({2, 4, 2, 2500, 2300}, 8, 1);
  const AttentionOptions options = {.mask = causal(), .score = {.alibi = Alibi{}}};
  for (const std::int64_t head : {0, 2, 3}) {
    SCOPED_TRACE(head);
    const HeadWeights exact(p.inputs(), options, 1, head);
    Explorer explorer(inputs_of(input_of(p.query, p.key, options, {}, 1)), {});
    expect_tiles(explorer, {.head = head}, {0, 3, 4}, exact);
  }
}

TEST(ViewExplorer, RowsWithoutKeysAndNan) {
  // The first 1,500 rows see nothing; row 2,000 is NaN.
  RandomProblem p = stored_problem({1, 1, 1, 4100, 2600}, 4, 1);
  set_value(p.query, {0, 0, 2000, 1}, std::nan(""));
  const AttentionOptions options = {.mask = causal()};
  const HeadWeights exact(p.inputs(), options, 0, 0);
  Explorer explorer(inputs_of(input_of(p.query, p.key, options)), {});
  expect_tiles(explorer, {}, {0, 2, 4, 5}, exact);
  const Frame frame = get_tile(explorer, {}, {.level = 4});
  EXPECT_NE(frame.header.flags & view::frame_flags::kHasNan, 0);
}

TEST(ViewExplorer, OneQueryOneKey) {
  for (const auto& [queries, keys] : {std::pair{1, 1}, {1, 5000}, {5000, 1}, {2, 3}}) {
    SCOPED_TRACE(testing::Message() << queries << " x " << keys);
    const RandomProblem p = stored_problem({1, 1, 1, queries, keys}, 4, 1);
    const HeadWeights exact(p.inputs(), {}, 0, 0);
    Explorer explorer(inputs_of(input_of(p.query, p.key, {})), {});
    expect_tiles(explorer, {}, {0, 1, 4, 5}, exact);
  }
}

TEST(ViewExplorer, Float64) {
  const RandomProblem p({1, 1, 1, 70, 3000}, 4, 1);
  ASSERT_EQ(p.query.dtype(), DType::kFloat64);
  const AttentionOptions options = {.mask = causal()};
  const HeadWeights exact(p.inputs(), options, 0, 0);
  Explorer explorer(inputs_of(input_of(p.query, p.key, options)), {});
  expect_tiles(explorer, {}, {0, 2, 4}, exact);
}

TEST(ViewExplorer, CellsHaveTheBitsOfAttentionWeights) {
  const RandomProblem p = stored_problem({2, 4, 2, 1500, 1400}, 16, 1);
  const AttentionOptions options = {.mask = causal(), .score = {.softcap = 20.0}};
  const Tensor lse = forward(p.inputs(), options).lse;
  for (const bool known : {false, true}) {
    Explorer explorer(
        inputs_of(input_of(p.query, p.key, options, known ? TensorRef(lse) : TensorRef(), 1)), {});
    RandomState random(2);
    for (int i = 0; i < 40; ++i) {
      const WeightTile tile = {.batch = 1,
                               .head = random.randint(0, 4),
                               .first_query = random.randint(0, 1500),
                               .queries = 1,
                               .first_key = random.randint(0, 1400),
                               .keys = 1};
      // The last bit of an lse may depend on the number of rows that are computed together.
      const ProblemPart row(
          options, {2, 4, 2, 1500, 1400},
          {.item = 1, .head = tile.head, .first_query = tile.first_query, .queries = 1});
      Tensor own(lse.dtype(), {1, 1, 1});
      attention_forward(row.queries_of(p.query), row.keys_of(p.key), no_value(row.keys_of(p.key)),
                        row.options(), {.lse = own});
      const double row_lse =
          known ? lse.value({1, tile.head, tile.first_query}) : own.value({0, 0, 0});
      Tensor weight(lse.dtype(), {1, 1}), score(lse.dtype(), {1, 1});
      if (known) {
        attention_weights({p.query, p.key, lse}, tile, options, weight);
      } else {
        attention_weights({row.queries_of(p.query), row.keys_of(p.key), own},
                          {.queries = 1, .first_key = tile.first_key, .keys = 1}, row.options(),
                          weight);
      }
      attention_scores({p.query, p.key, lse}, tile, options, score);
      const auto cell =
          Waiting<view::CellAnswer>([&](auto stop, auto reply) {
            explorer.cell({.head = tile.head}, tile.first_query, tile.first_key, stop, reply);
          }).get();
      EXPECT_EQ(cell.weight, weight.value({0, 0}));
      EXPECT_EQ(cell.score, score.value({0, 0}));
      EXPECT_EQ(cell.lse, row_lse);
      EXPECT_EQ(cell.hidden, tile.first_key > tile.first_query - 100);
    }
  }
}

TEST(ViewExplorer, RowsMatchTheReference) {
  const RandomProblem p = stored_problem({1, 2, 1, 1200, 3000}, 8, 1);
  const AttentionOptions options = {.mask = causal() & dense(random_mask(1200, 3000))};
  const HeadWeights exact(p.inputs(), options, 0, 1);
  Explorer explorer(inputs_of(input_of(p.query, p.key, options)), {});
  for (const std::int64_t query : {0, 1023, 1024, 1199}) {
    SCOPED_TRACE(query);
    const auto row = Waiting<view::RowAnswer>([&](auto stop, auto reply) {
                       explorer.row({.head = 1}, query, 5, stop, reply);
                     }).get();
    double entropy = 0.0, distance = 0.0;
    std::int64_t visible = 0;
    std::vector<std::pair<double, std::int64_t>> order;
    for (std::int64_t key = 0; key < 3000; ++key) {
      const double weight = exact.weight(query, key);
      visible += exact.visible(query, key) ? 1 : 0;
      if (weight > 0.0) entropy -= weight * std::log(weight);
      distance += weight * static_cast<double>(query + 1800 - key);
      order.emplace_back(-weight, key);
    }
    std::sort(order.begin(), order.end());
    EXPECT_EQ(row.visible, visible);
    EXPECT_NEAR(row.entropy, entropy, 1e-4);
    EXPECT_NEAR(row.mean_distance, distance, 1e-4 * 3000);
    EXPECT_EQ(row.maximum_key, order[0].second);
    EXPECT_NEAR(row.maximum, -order[0].first, kCellError * -order[0].first);
    EXPECT_NEAR(row.first_key, exact.weight(query, 0), 1e-6);
    ASSERT_EQ(row.top.size(), 5U);
    for (std::size_t n = 0; n < 5; ++n) {
      EXPECT_EQ(row.top[n].position, order[n].second) << n;
      EXPECT_NEAR(row.top[n].weight, -order[n].first, 1e-5);
    }
    EXPECT_EQ(std::accumulate(row.powers.begin(), row.powers.end(), std::int64_t{0}), visible);
    EXPECT_NE(row.powers.back(), 0);
    std::int64_t halves = 0;
    for (const auto& [weight, key] : order) halves += -weight > 0.5 ? 1 : 0;
    EXPECT_EQ(row.powers.front(), halves);
  }
}

TEST(ViewExplorer, RowsOfEqualWeightsCountPowers) {
  // 8 keys of weight 1/8 each: 2^-(3 + 1) < w <= 2^-3.
  const Tensor query(DType::kFloat32, {1, 1, 2, 2}), key(DType::kFloat32, {1, 1, 8, 2});
  Explorer explorer(inputs_of(input_of(query, key, {})), {});
  const auto row = Waiting<view::RowAnswer>([&](auto stop, auto reply) {
                     explorer.row({}, 1, 3, stop, reply);
                   }).get();
  EXPECT_EQ(row.powers, (std::vector<std::int64_t>{0, 0, 0, 8}));
  ASSERT_EQ(row.top.size(), 3U);
  EXPECT_EQ(row.top[2].position, 2);
}

TEST(ViewExplorer, ColumnsMatchAttentionReceived) {
  const RandomProblem p = stored_problem({1, 2, 1, 3000, 2500}, 8, 1);
  const AttentionOptions options = {.mask = causal()};
  const Tensor lse = forward(p.inputs(), options).lse;
  Tensor sum(lse.dtype(), {1, 2, 2500}), largest(lse.dtype(), {1, 2, 2500});
  attention_received({p.query, p.key, lse}, options, {.sum = sum, .largest = largest});
  const HeadWeights exact(p.inputs(), options, 0, 1);
  Explorer explorer(inputs_of(input_of(p.query, p.key, options)), {});
  for (const std::int64_t key : {0, 700, 2499}) {
    SCOPED_TRACE(key);
    const auto column = Waiting<view::ColumnAnswer>([&](auto stop, auto reply) {
                          explorer.column({.head = 1}, key, 4, stop, reply);
                        }).get();
    const double received = sum.value({0, 1, key});
    EXPECT_NEAR(column.sum, received, 1e-5 * received);
    EXPECT_NEAR(column.largest, largest.value({0, 1, key}), 1e-6);
    std::vector<std::pair<double, std::int64_t>> order;
    for (std::int64_t query = 0; query < 3000; ++query) {
      if (exact.weight(query, key) > 0.0) order.emplace_back(-exact.weight(query, key), query);
    }
    std::sort(order.begin(), order.end());
    ASSERT_EQ(column.top.size(), std::min<std::size_t>(4, order.size()));
    for (std::size_t n = 0; n < column.top.size(); ++n) {
      EXPECT_EQ(column.top[n].position, order[n].second) << n;
    }
  }
}

TEST(ViewExplorer, LinesAreMeans) {
  const RandomProblem p = stored_problem({1, 1, 1, 1300, 1300}, 8, 1);
  const AttentionOptions options = {.mask = causal()};
  const HeadWeights exact(p.inputs(), options, 0, 0);
  Explorer explorer(inputs_of(input_of(p.query, p.key, options)), {});
  for (const bool of_keys : {true, false}) {
    const view::LineRequest request = {
        .of_keys = of_keys, .lines = {5, 700, 1200}, .range = {600, 1300}};
    const auto means = Waiting<std::vector<float>>([&](auto stop, auto reply) {
                         explorer.lines({}, request, stop, reply);
                       }).get();
    ASSERT_EQ(means.size(), 700U);
    for (std::int64_t i = 600; i < 1300; ++i) {
      double sum = 0.0;
      bool visible = false;
      for (const std::int64_t line : request.lines) {
        sum += of_keys ? exact.weight(line, i) : exact.weight(i, line);
        visible = visible || (of_keys ? exact.visible(line, i) : exact.visible(i, line));
      }
      const auto mean = static_cast<double>(means[static_cast<std::size_t>(i - 600)]);
      if (visible) {
        ASSERT_NEAR(mean, sum / 3, kCellError * sum / 3) << i;
      } else {
        ASSERT_EQ(mean, -1.0) << i;
      }
    }
  }
}

TEST(ViewExplorer, HeadsAreThoseOfTheCommand) {
  const RandomProblem p = stored_problem({2, 4, 2, 300, 300}, 8, 1);
  const AttentionOptions options = {.mask = causal()};
  view::Input input = input_of(p.query, p.key, options, {}, 1);
  input.layers[0].attention.heads = {0, 3, 4, 9};
  Explorer explorer(inputs_of(std::move(input)), {});
  const auto told = recording::tell_heads({p.query, p.key}, options, recording::kHeadBlocks);
  for (int time = 0; time < 2; ++time) {  // computed, and from memory
    const auto heads = Waiting<std::vector<view::HeadNumbers>>([&](auto stop, auto reply) {
                         explorer.heads({}, stop, reply);
                       }).get();
    ASSERT_EQ(heads.size(), 4U);
    for (std::size_t h = 0; h < 4; ++h) {
      const engine::HeadTold& expected = told[4 + h];
      EXPECT_EQ(heads[h].head, (std::vector<std::int64_t>{0, 3, 4, 9})[h]);
      EXPECT_EQ(heads[h].name, expected.name());
      ASSERT_EQ(heads[h].numbers.size(), Explorer::number_names().size());
      for (std::size_t i = 0; i < expected.numbers.size(); ++i) {
        EXPECT_EQ(heads[h].numbers[i], expected.numbers[i]) << Explorer::number_names()[i];
      }
      EXPECT_TRUE(std::isnan(heads[h].numbers.back()));
    }
  }
}

TEST(ViewExplorer, HeadsOfARecordingHaveTokenScores) {
  constexpr std::int64_t kTokens = 40;
  const RandomProblem p = stored_problem({1, 2, 1, kTokens, kTokens}, 8, 1);
  const AttentionOptions options = {.mask = causal()};
  const Folder folder;
  const std::string path = folder / "run.safetensors";
  {
    RecordingWriter writer(path);
    RecordedAttention attention = recorded(p, options);
    attention.query_tokens = attention.key_tokens = {"text"};
    writer.add(attention);
    TokenList tokens = {.name = "text"};
    for (std::int64_t i = 0; i < kTokens; ++i) tokens.texts.push_back(std::to_string(i % 10));
    writer.add(tokens);
    writer.finish();
  }
  view::Input input;
  input.recording = std::make_shared<const Recording>(Recording::open(path));
  view::Layer layer;
  layer.attention = input.recording->attentions()[0];
  input.layers.push_back(layer);
  const auto scores = token_scores(*input.recording, layer.attention);
  ASSERT_TRUE(scores.has_value());
  Explorer explorer(inputs_of(std::move(input)), {});
  const auto heads = Waiting<std::vector<view::HeadNumbers>>([&](auto stop, auto reply) {
                       explorer.heads({}, stop, reply);
                     }).get();
  ASSERT_EQ(heads.size(), 2U);
  for (std::int64_t head = 0; head < 2; ++head) {
    const std::vector<double>& numbers = heads[static_cast<std::size_t>(head)].numbers;
    EXPECT_EQ(numbers[9], scores->induction.value({0, head}));
    EXPECT_EQ(numbers[10], scores->duplicate.value({0, head}));
    EXPECT_GT(numbers[10], 0.0);
  }
  EXPECT_EQ(Explorer::number_names()[9], "induction");
  EXPECT_EQ(Explorer::number_names()[10], "duplicate");
}

TEST(ViewExplorer, ThumbnailsArePooledMaps) {
  const RandomProblem p = stored_problem({1, 2, 1, 500, 60}, 8, 1);
  const AttentionOptions options = {.mask = causal()};
  Explorer explorer(inputs_of(input_of(p.query, p.key, options)), {});
  for (const Pool reduce : {Pool::kMax, Pool::kMean}) {
    const auto frames = Waiting<std::vector<view::FrameBytes>>([&](auto stop, auto reply) {
                          explorer.thumbnails({}, reduce, stop, reply);
                        }).get();
    ASSERT_EQ(frames.size(), 2U);
    for (std::int64_t head = 0; head < 2; ++head) {
      const Frame frame = view::decode_frame(*frames[static_cast<std::size_t>(head)]);
      EXPECT_EQ(frame.header.x, head);
      EXPECT_EQ(frame.header.y, 0);
      ASSERT_EQ(frame.header.rows, 64);
      ASSERT_EQ(frame.header.columns, 60);
      const MapCells map = attention_map({p.query, p.key, {}},
                                         {.head = head,
                                          .queries = {0, 500},
                                          .keys = {0, 60},
                                          .rows = 64,
                                          .columns = 60,
                                          .pool = reduce},
                                         options)
                               .map;
      for (std::int64_t r = 0; r < 64; ++r) {
        for (std::int64_t c = 0; c < 60; ++c) {
          const view::Code code = frame.codes[static_cast<std::size_t>(r * 60 + c)];
          const auto cell = map.masked(r, c) ? std::nullopt : std::optional(map.value(r, c));
          ASSERT_TRUE(is_code_of(code, cell)) << "cell " << r << ", " << c;
        }
      }
    }
  }
}

TEST(ViewExplorer, MapsAreThoseOfAttentionMap) {
  const RandomProblem p = stored_problem({2, 2, 1, 200, 300}, 8, 1);
  Explorer explorer(inputs_of(input_of(p.query, p.key, {}, {}, 1)), {});
  MapRequest request = {.queries = {10, 150}, .keys = {7, 300}, .rows = 20, .columns = 30};
  const AttentionMap found = Waiting<AttentionMap>([&](auto stop, auto reply) {
                               explorer.map({.head = 1}, request, stop, reply);
                             }).get();
  request.batch = 1;
  request.head = 1;
  const AttentionMap expected = attention_map({p.query, p.key, {}}, request, {});
  EXPECT_TRUE(same_bits(found.map.cells, expected.map.cells));
}

TEST(ViewExplorer, WrongRequestsGetErrors) {
  const RandomProblem p = stored_problem({1, 2, 1, 3000, 3000}, 4, 1);
  Explorer explorer(inputs_of(input_of(p.query, p.key, {.mask = causal()})), {});
  const auto message = [](auto&& ask) {
    try {
      ask();
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const auto tile = [&](const HeadPlace& head, const TilePlace& place) {
    return message([&] { get_tile(explorer, head, place); });
  };
  EXPECT_EQ(tile({.head = 2}, {}), "head: expected 0 to 1, got 2");
  EXPECT_EQ(tile({.layer = 1}, {}), "layer: expected 0 to 0, got 1");
  EXPECT_EQ(tile({.input = 1}, {}), "input: expected 0 to 0, got 1");
  EXPECT_EQ(tile({}, {.x = 12}), "x: expected 0 to 11, got 12");
  EXPECT_EQ(tile({}, {.level = 5}), "level: expected 0 to 4, got 5");
  EXPECT_EQ(tile({}, {.reduce = Pool::kMean, .level = 4}),
            "level: expected less than 4 for mean, got 4");
  EXPECT_EQ(tile({}, {.reduce = Pool::kSum}), "reduce: expected max or mean, got sum");
  const auto lines = [&](const view::LineRequest& request) {
    return message([&] {
      Waiting<std::vector<float>>([&](auto stop, auto reply) {
        explorer.lines({}, request, stop, reply);
      }).get();
    });
  };
  EXPECT_EQ(lines({.range = {0, 1}}), "query: expected one or more, got none");
  EXPECT_EQ(lines({.lines = {3000}, .range = {0, 1}}), "query: expected 0 to 2999, got 3000");
  EXPECT_EQ(lines({.lines = {0}, .range = {5, 3001}}),
            "range: expected a range within 0 to 3000 of at least 1, got 5 to before 3001");
  EXPECT_EQ(message([&] {
              explorer.start_pass({}, {0, 3001});
            }),
            "rows: expected a range within 0 to 3000 of at least 1, got 0 to before 3001");
  EXPECT_EQ(message([&] { explorer.status({.head = -1}); }), "head: expected 0 to 1, got -1");
  EXPECT_EQ(message([&] {
              const Explorer small(inputs_of(input_of(p.query, p.key, {})), {.memory = 1000});
            }),
            "memory: expected 4194304 bytes or more for these inputs, got 1000");
}

}  // namespace
}  // namespace fovea::test
