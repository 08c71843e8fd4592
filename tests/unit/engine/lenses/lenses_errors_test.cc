// SPDX-License-Identifier: Apache-2.0
//
// Errors of lenses and of recomputed weights: their messages, and that the outputs are untouched.

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/lens_buffers.h"
#include "fovea/lenses.h"
#include "fovea/mask.h"
#include "fovea/weights.h"

#include "support/forward.h"
#include "support/lenses.h"
#include "support/message_of.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

/// Batch 2, q_heads 4, kv_heads 2, q_len 6, kv_len 8.
constexpr ProblemShape kShape{2, 4, 2, 6, 8};

struct BadLens {
  std::string name;
  std::function<void(AttentionOptions&, Lenses&)> spoil;
  std::string message;
};

Tensor floats(const Shape& shape) { return Tensor(DType::kFloat32, shape); }
Tensor numbers(const Shape& shape) { return Tensor(DType::kInt64, shape); }

/// Stores a tensor for the rest of the program and returns a view of it.
const MutableTensorView& kept(Tensor tensor) {
  static std::vector<std::unique_ptr<Tensor>> tensors;
  static std::vector<std::unique_ptr<MutableTensorView>> views;
  tensors.push_back(std::make_unique<Tensor>(std::move(tensor)));
  views.push_back(std::make_unique<MutableTensorView>(*tensors.back()));
  return *views.back();
}

const std::vector<BadLens> kBadLenses{
    {"entropy of another shape",
     [](AttentionOptions&, Lenses& o) {
       o.rows.entropy = kept(floats({2, 4, 8}));
     },
     "rows.entropy: expected [batch, q_heads, q_len] = [2, 4, 6], got [2, 4, 8]"},
    {"entropy of another type",
     [](AttentionOptions&, Lenses& o) {
       o.rows.entropy = kept(Tensor(DType::kFloat64, {2, 4, 6}));
     },
     "rows.entropy: expected float32 for inputs of float32, got float64"},
    {"key that is a float",
     [](AttentionOptions&, Lenses& o) {
       o.rows.maximum_key = kept(floats({2, 4, 6}));
     },
     "rows.maximum_key: expected int64, got float32"},
    {"top of no key",
     [](AttentionOptions&, Lenses& o) {
       o.top.keys = kept(numbers({2, 4, 6, 0}));
     },
     "top.keys: expected k from 1 to 64, got 0"},
    {"top of more keys than there are",
     [](AttentionOptions&, Lenses& o) {
       o.top.keys = kept(numbers({2, 4, 6, 9}));
     },
     "top.keys: expected k of at most kv_len = 8, got 9"},
    {"top of more than 64",
     [](AttentionOptions&, Lenses& o) {
       o.top.weights = kept(floats({2, 4, 6, 65}));
     },
     "top.weights: expected k from 1 to 64, got 65"},
    {"top keys and weights of different k",
     [](AttentionOptions&, Lenses& o) {
       o.top.keys = kept(numbers({2, 4, 6, 3}));
       o.top.weights = kept(floats({2, 4, 6, 2}));
     },
     "top.weights: expected [batch, q_heads, q_len, k] = [2, 4, 6, 3], got [2, 4, 6, 2]"},
    {"top of rank 3",
     [](AttentionOptions&, Lenses& o) {
       o.top.keys = kept(numbers({4, 6, 3}));
     },
     "top.keys: expected [batch, q_heads, q_len, k], got [4, 6, 3]"},
    {"map of too many rows",
     [](AttentionOptions&, Lenses& o) {
       o.map.cells = kept(floats({2, 4, 7, 8}));
     },
     "map.cells: expected rows from 1 to q_len = 6, got 7"},
    {"map of too many columns",
     [](AttentionOptions&, Lenses& o) {
       o.map.cells = kept(floats({2, 4, 6, 9}));
     },
     "map.cells: expected columns from 1 to kv_len = 8, got 9"},
    {"map of no columns",
     [](AttentionOptions&, Lenses& o) {
       o.map.cells = kept(floats({2, 4, 6, 0}));
     },
     "map.cells: expected columns from 1 to kv_len = 8, got 0"},
    {"map of too few rows of a given size",
     [](AttentionOptions&, Lenses& o) {
       o.map.cells = kept(floats({2, 4, 2, 8}));
       o.map.cell_queries = 2;
     },
     "map.cells: expected 3 rows of cell_queries = 2, got 2"},
    {"map of too many columns of a given size",
     [](AttentionOptions&, Lenses& o) {
       o.map.cells = kept(floats({2, 4, 6, 4}));
       o.map.cell_keys = 3;
     },
     "map.cells: expected 3 columns of cell_keys = 3, got 4"},
    {"map of cells of a negative size",
     [](AttentionOptions&, Lenses& o) {
       o.map.cells = kept(floats({2, 4, 6, 4}));
       o.map.cell_keys = -1;
     },
     "map.cell_keys: expected 0 or more, got -1"},
    {"map of one head",
     [](AttentionOptions&, Lenses& o) {
       o.map.cells = kept(floats({6, 8}));
     },
     "map.cells: expected [batch, q_heads, rows, columns], got [6, 8]"},
    {"pairs that are floats",
     [](AttentionOptions&, Lenses& o) {
       o.map.pairs = kept(floats({2, 4, 3, 3}));
     },
     "map.pairs: expected int64, got float32"},
    {"map over a lens",
     [](AttentionOptions&, Lenses& o) {
       o.rows.entropy = kept(floats({2, 4, 6}));
       o.rows.maximum = o.rows.entropy;
     },
     "rows.maximum: expected memory of its own, got some that rows.entropy uses"},
    {"dropout",
     [](AttentionOptions& options, Lenses& o) {
       options.dropout.probability = 0.5;
       o.rows.entropy = kept(floats({2, 4, 6}));
     },
     "dropout: expected none with lenses, got 0.5"},
};

TEST(AttentionLensErrors, MessagesNameTheLensAndOutputsAreUntouched) {
  const RandomProblem p(kShape, 5, 3);
  const Tensor query = convert(p.query, DType::kFloat32);
  const Tensor key = convert(p.key, DType::kFloat32);
  const Tensor value = convert(p.value, DType::kFloat32);
  for (const BadLens& bad : kBadLenses) {
    Tensor context = floats({2, 4, 6, 3});
    fill(context, kUntouched);
    AttentionOptions options;
    Lenses lenses;
    bad.spoil(options, lenses);
    const AttentionOutputs outputs{.context = context, .lenses = &lenses};
    EXPECT_EQ(message_of([&] { attention_forward(query, key, value, options, outputs); }),
              bad.message)
        << bad.name;
    EXPECT_TRUE(all_are(context, static_cast<double>(kUntouched))) << bad.name;
  }
}

TEST(AttentionLensErrors, NoMapWithPackedSequences) {
  const RandomProblem p = stored_problem({1, 1, 1, 9, 9}, 4, 4);
  AttentionOptions options;
  options.sequences = {{0, 4, 9}, {0, 4, 9}};
  Tensor cells = floats({1, 1, 3, 3});
  Lenses lenses;
  lenses.map.cells = cells;
  const AttentionOutputs outputs{.lenses = &lenses};
  EXPECT_EQ(message_of([&] { attention_forward(p.query, p.key, p.value, options, outputs); }),
            "map: expected no packed sequences, got 2; documents() hides as much");
}

struct BadTile {
  std::string name;
  std::function<void(WeightTile&)> spoil;
  std::string message;
};

const std::vector<BadTile> kBadTiles{
    {"batch", [](WeightTile& t) { t.batch = 2; },
     "tile.batch: expected 0 or more and less than batch = 2, got 2"},
    {"head", [](WeightTile& t) { t.head = -1; },
     "tile.head: expected 0 or more and less than q_heads = 4, got -1"},
    {"queries outside", [](WeightTile& t) { t.first_query = 5; },
     "tile.queries: expected a range within q_len = 6 of at least 1, got 2 from 5 on"},
    {"no queries", [](WeightTile& t) { t.queries = 0; },
     "tile.queries: expected a range within q_len = 6 of at least 1, got 0 from 0 on"},
    {"keys before the first", [](WeightTile& t) { t.first_key = -1; },
     "tile.keys: expected a range within kv_len = 8 of at least 1, got 3 from -1 on"},
    {"keys beyond all numbers",
     [](WeightTile& t) { t.first_key = std::numeric_limits<std::int64_t>::max(); },
     "tile.keys: expected a range within kv_len = 8 of at least 1, got 3 from 9223372036854775807 "
     "on"},
    {"reversed", [](WeightTile& t) { t.keys = -3; },
     "tile.keys: expected a range within kv_len = 8 of at least 1, got -3 from 0 on"},
};

TEST(AttentionWeightErrors, MessagesNameTheArgument) {
  const RandomProblem p = stored_problem(kShape, 5, 3);
  const Tensor lse = forward(p.inputs()).lse;
  const WeightInputs inputs{p.query, p.key, lse};
  Tensor weights = floats({2, 3});
  for (const BadTile& bad : kBadTiles) {
    WeightTile tile{.queries = 2, .keys = 3};
    bad.spoil(tile);
    EXPECT_EQ(message_of([&] { attention_weights(inputs, tile, {}, weights); }), bad.message)
        << bad.name;
    EXPECT_EQ(message_of([&] { attention_scores(inputs, tile, {}, weights); }), bad.message);
  }
  const WeightTile tile{.queries = 2, .keys = 3};
  const auto message = [&](const WeightInputs& in, const MutableTensorView& out) {
    return message_of([&] { attention_weights(in, tile, {}, out); });
  };
  EXPECT_EQ(message({p.query, p.key, {}}, weights),
            "lse: expected [batch, q_heads, q_len] = [2, 4, 6], got nothing");
  const Tensor other = floats({2, 4, 8});
  EXPECT_EQ(message({p.query, p.key, other}, weights),
            "lse: expected [batch, q_heads, q_len] = [2, 4, 6], got [2, 4, 8]");
  const Tensor doubles(DType::kFloat64, {2, 4, 6});
  EXPECT_NE(message({p.query, p.key, doubles}, weights).find("lse: expected float32"),
            std::string::npos);
  Tensor wrong = floats({3, 2});
  EXPECT_EQ(message(inputs, wrong), "weights: expected [queries, keys] = [2, 3], got [3, 2]");
  EXPECT_EQ(message_of([&] { attention_weights(inputs, tile, {}, PooledMap{.cells = wrong}); }),
            "map.cells: expected rows from 1 to queries = 2, got 3");
  Tensor row = floats({8});
  const auto row_message = [&](const WeightRow& of, const MutableTensorView& out) {
    return message_of([&] { attention_row(inputs, of, {}, out); });
  };
  EXPECT_EQ(row_message({.batch = 2, .head = 0}, row),
            "row.batch: expected 0 or more and less than batch = 2, got 2");
  EXPECT_EQ(row_message({.head = 4}, row),
            "row.head: expected 0 or more and less than q_heads = 4, got 4");
  EXPECT_EQ(row_message({.head = 0, .query = -1}, row),
            "row.query: expected 0 or more and less than q_len = 6, got -1");
  EXPECT_EQ(row_message({}, row), "weights: expected [q_heads, kv_len] = [4, 8], got [8]");
  EXPECT_EQ(row_message({.head = 0}, weights), "weights: expected [kv_len] = [8], got [2, 3]");
  ReceivedAttention received;
  Tensor recent = floats({2, 4, 8});
  received.recent = recent;
  EXPECT_EQ(message_of([&] { attention_received(inputs, {}, received); }),
            "recent_queries: expected 1 to q_len = 6, got 0");
  received = {};
  Tensor bins = numbers({2, 4, 0});
  received.histogram = bins;
  EXPECT_EQ(message_of([&] { attention_received(inputs, {}, received); }),
            "histogram: expected [batch, q_heads, bins] with 1 to 4096 bins, got [2, 4, 0]");
  AttentionOptions dropping;
  dropping.dropout.probability = 0.25;
  EXPECT_EQ(message_of([&] { attention_weights(inputs, tile, dropping, weights); }),
            "dropout: expected none for recomputed weights, got 0.25");
}

TEST(LensBuffersErrors, NumbersOutOfRange) {
  const auto message = [](const LensChoice& choice) {
    return message_of([&] { LensBuffers(kShape, DType::kFloat32, choice); });
  };
  EXPECT_EQ(message({.top = -1}), "top: expected 0 keys or more, got -1");
  EXPECT_EQ(message({.map_rows = 2}),
            "map: expected rows and columns of 1 or more, or 0 for none, got 2 x 0");
  EXPECT_EQ(message({.map_rows = -1, .map_columns = 2}),
            "map: expected rows and columns of 1 or more, or 0 for none, got -1 x 2");
}

}  // namespace
}  // namespace fovea::test
