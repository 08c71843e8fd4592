// SPDX-License-Identifier: Apache-2.0
//
// The pass over the rows of a head (pass.h).

#include "view/explorer/pass.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <span>
#include <tuple>
#include <utility>

#include "fovea/attention.h"
#include "fovea/weights.h"

#include "problem/part.h"
#include "problem/visible_pairs.h"

namespace fovea::view {
namespace {

// A fused pass computes cells of all keys. If a block sees fewer than one key in so many, a pass
// without cells and a second product of the keys it sees take less time.
constexpr std::int64_t kFewKeys = 8;

/// Owning tensors of a pooled map of one head.
struct MapTensors {
  MapTensors(DType dtype, const Shape& shape) : cells(dtype, shape), pairs(DType::kInt64, shape) {}

  PooledMap map(Pool pool, int level) {
    const std::int64_t side = std::int64_t{1} << level;
    return {.cells = cells, .pairs = pairs, .pool = pool, .cell_queries = side, .cell_keys = side};
  }

  Tensor cells, pairs;
};

template <class Number>
void encode_numbers(std::span<const Number> numbers, std::span<const std::int64_t> pairs,
                    std::vector<Code>& codes) {
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (pairs[i] > 0) codes[i] = encode_weight(static_cast<float>(numbers[i]));
  }
}

/// Computes the cells of a rectangle from known lse.
std::vector<Code> cells_of_weights(const HeadStore& head, const WeightTile& tile, Pool pool,
                                   int level, const Execution& execution) {
  MapTensors to(head.dtype(), {cells_of(tile.queries, level), cells_of(tile.keys, level)});
  attention_weights(head.inputs(), tile, head.options(execution), to.map(pool, level));
  return encode_cells(to.cells, to.pairs);
}

/// Returns some rows of a head as a problem.
ProblemPart rows_of(const HeadStore& head, const IndexRange& queries, const Execution& execution) {
  const ProblemShape shape = {1, 1, 1, head.pyramid().queries(), head.pyramid().keys()};
  return {
      head.options(execution), shape, {.first_query = queries.begin, .queries = queries.size()}};
}

/// Computes the lse of a row block and, if `cells` is not null, its cells in the same pass.
void forward_block(HeadStore& head, std::int64_t block, MapTensors* cells,
                   const Execution& execution) {
  const Pyramid& pyramid = head.pyramid();
  const IndexRange queries = pyramid.queries_of(block);
  const WeightInputs inputs = head.inputs();
  const ProblemPart part = rows_of(head, queries, execution);
  const TensorView key = part.keys_of(inputs.key);
  Tensor lse(head.dtype(), {1, 1, queries.size()});
  Lenses lenses;
  if (cells != nullptr) lenses.map = cells->map(Pool::kMax, pyramid.base_level());
  attention_forward(part.queries_of(inputs.query), key, no_value(key), part.options(),
                    {.lse = lse, .lenses = &lenses});
  if (!head.has_lse(block)) head.store_lse(block, lse);
}

/// Returns the codes of the cells of one query at the base level, of `keys`: kUnknownCode where the
/// query sees nothing, because other queries may. The weights begin with those of `first_key`.
std::vector<Code> cells_of_row(const HeadStore& head, std::int64_t query, const IndexRange& keys,
                               const Tensor& weights, std::int64_t first_key) {
  const int level = head.pyramid().base_level();
  const VisiblePairs pairs_seen(head.options());
  const KeyRange seen = pairs_seen.key_range(head.at(query, 0), head.pyramid().keys());
  std::vector<std::uint8_t> visible;
  if (!seen.exact && seen.begin < seen.end) {
    visible.resize(static_cast<std::size_t>(seen.end - seen.begin));
    pairs_seen.fill(head.at(query, seen.begin), seen.end - seen.begin, visible.data());
  }
  std::vector<Code> codes(static_cast<std::size_t>(cells_of(keys.size(), level)), kUnknownCode);
  const auto pool = [&](auto numbers) {
    for (std::size_t cell = 0; cell < codes.size(); ++cell) {
      const std::int64_t begin = keys.begin + (static_cast<std::int64_t>(cell) << level);
      const std::int64_t end = std::min({begin + (std::int64_t{1} << level), keys.end, seen.end});
      float most = -1.0f;  // no visible weight
      for (std::int64_t key = std::max(begin, seen.begin); key < end; ++key) {
        if (!seen.exact && visible[static_cast<std::size_t>(key - seen.begin)] == 0) continue;
        const auto weight = static_cast<float>(numbers[static_cast<std::size_t>(key - first_key)]);
        if (!(weight <= most) && !std::isnan(most)) most = weight;
      }
      if (most != -1.0f) codes[cell] = encode_weight(most);
    }
  };
  if (weights.dtype() == DType::kFloat32) {
    pool(weights.span<float>());
  } else {
    pool(weights.span<double>());
  }
  return codes;
}

}  // namespace

FrameHeader header_of(const Pyramid& pyramid, const TilePlace& tile) {
  return {.reduce = tile.reduce,
          .level = tile.level,
          .x = tile.x,
          .y = tile.y,
          .columns = cells_of(pyramid.keys_of(tile).size(), tile.level),
          .rows = cells_of(pyramid.queries_of(tile).size(), tile.level)};
}

FrameBytes hidden_tile(const HeadStore& head, const TilePlace& tile) {
  const Pyramid& pyramid = head.pyramid();
  if (head.classify(pyramid.queries_of(tile), pyramid.keys_of(tile)) != Visibility::kNone)
    return {};
  const FrameHeader header = header_of(pyramid, tile);
  const std::vector<Code> codes(static_cast<std::size_t>(header.rows * header.columns));
  return std::make_shared<const std::string>(encode_frame(header, codes));
}

RowProblem::RowProblem(const HeadStore& head, std::int64_t query, const Execution& execution)
    : part_(rows_of(head, {query, query + 1}, execution)) {
  const WeightInputs inputs = head.inputs();
  inputs_ = {part_.queries_of(inputs.query), part_.keys_of(inputs.key)};
  if (head.lse_recorded()) {
    inputs_.lse = part_.numbers_of(inputs.lse);
    return;
  }
  lse_ = Tensor(head.dtype(), {1, 1, 1});
  attention_forward(inputs_.query, inputs_.key, no_value(inputs_.key), part_.options(),
                    {.lse = lse_});
  inputs_.lse = lse_;
}

std::vector<Code> encode_cells(const Tensor& cells, const Tensor& pairs) {
  std::vector<Code> codes(static_cast<std::size_t>(cells.size()), kHiddenCode);
  if (cells.dtype() == DType::kFloat32) {
    encode_numbers(cells.span<float>(), pairs.span<std::int64_t>(), codes);
  } else {
    encode_numbers(cells.span<double>(), pairs.span<std::int64_t>(), codes);
  }
  return codes;
}

void compute_block(HeadStore& head, std::int64_t block, bool cells, const Execution& execution) {
  const auto start = std::chrono::steady_clock::now();
  const Pyramid& pyramid = head.pyramid();
  const IndexRange queries = pyramid.queries_of(block);
  const IndexRange keys = pyramid.cell_keys_of(block);
  const int level = pyramid.base_level();
  const bool wants_cells = cells && pyramid.stores() && !head.has_cells(block);
  // Cells that were dropped are computed again in the same way, so that no bit differs.
  const bool fused = wants_cells && !head.lse_recorded() && keys.size() > 0 &&
                     keys.size() * kFewKeys >= pyramid.keys();
  std::vector<Code> base;
  if (fused) {
    MapTensors found(head.dtype(),
                     {1, 1, cells_of(queries.size(), level), cells_of(pyramid.keys(), level)});
    forward_block(head, block, &found, execution);
    const std::vector<Code> all = encode_cells(found.cells, found.pairs);
    const std::int64_t all_columns = found.cells.extent(3);
    for (std::int64_t row = 0; row < found.cells.extent(2); ++row) {
      const auto from = all.begin() + row * all_columns;
      base.insert(base.end(), from + (keys.begin >> level), from + cells_of(keys.end, level));
    }
  } else if (!head.has_lse(block)) {
    forward_block(head, block, nullptr, execution);
  }
  if (wants_cells && !fused && keys.size() > 0) {
    base = cells_of_weights(head,
                            {.first_query = queries.begin,
                             .queries = queries.size(),
                             .first_key = keys.begin,
                             .keys = keys.size()},
                            Pool::kMax, level, execution);
  }
  if (wants_cells) {
    head.store_cells(block, std::make_shared<const BlockCells>(pyramid, block, std::move(base)));
  }
  if (!head.block_done(block)) return;  // an estimate needs the time of whole blocks
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  head.note_time(block, time.count());
}

void compute_preview(HeadStore& head, std::int64_t block, const Execution& execution) {
  const Pyramid& pyramid = head.pyramid();
  const IndexRange queries = pyramid.queries_of(block);
  const IndexRange keys = pyramid.cell_keys_of(block);
  const std::int64_t query = queries.begin + queries.size() / 2;
  const RowProblem row(head, query, execution);
  // A whole row is read at memory bandwidth. A rectangle takes longer per key, but may be narrow.
  std::vector<Code> base;
  if (keys.size() * kFewKeys >= pyramid.keys()) {
    Tensor weights(head.dtype(), {pyramid.keys()});
    attention_row(row.inputs(), {.head = 0}, row.options(), weights);
    base = cells_of_row(head, query, keys, weights, 0);
  } else {
    Tensor weights(head.dtype(), {1, keys.size()});
    attention_weights(row.inputs(), {.queries = 1, .first_key = keys.begin, .keys = keys.size()},
                      row.options(), weights);
    base = cells_of_row(head, query, keys, weights, keys.begin);
  }
  head.store_cells(block,
                   std::make_shared<const BlockCells>(pyramid, block, std::move(base), true));
}

std::optional<PassUnit> next_unit(const HeadStore& head, const IndexRange& queries) {
  const Pyramid& pyramid = head.pyramid();
  const auto width =
      static_cast<int>(std::bit_width(static_cast<std::uint64_t>(pyramid.blocks() - 1)));
  const auto reversed = [&](std::int64_t block) {
    std::int64_t bits = 0;
    for (int bit = 0; bit < width; ++bit) bits = bits << 1 | (block >> bit & 1);
    return bits;
  };
  // Whether the block is not asked for, whether it has a preview, its place among such blocks.
  using Order = std::tuple<bool, bool, std::int64_t>;
  std::optional<PassUnit> next;
  Order first;
  for (std::int64_t block = 0; block < pyramid.blocks(); ++block) {
    if (head.block_done(block)) continue;
    const IndexRange rows = pyramid.queries_of(block);
    const std::int64_t distance =
        std::max({std::int64_t{0}, queries.begin - rows.end + 1, rows.begin - queries.end + 1});
    const bool preview = pyramid.stores() && pyramid.keys_of(block).size() > 0 &&
                         head.cells_state(block) == RowState::kUnknown;
    const Order order = {distance > 0, !preview, preview ? reversed(block) : distance};
    if (!next || order < first) {
      next = {.block = block, .preview = preview};
      first = order;
    }
  }
  return next;
}

std::vector<Code> compute_tile(const HeadStore& head, const TilePlace& tile,
                               const Execution& execution) {
  const IndexRange queries = head.pyramid().queries_of(tile);
  const IndexRange keys = head.pyramid().keys_of(tile);
  const WeightTile rectangle = {.first_query = queries.begin,
                                .queries = queries.size(),
                                .first_key = keys.begin,
                                .keys = keys.size()};
  if (tile.level > 0) {
    return cells_of_weights(head, rectangle, tile.reduce, tile.level, execution);
  }
  Tensor weights(head.dtype(), {queries.size(), keys.size()});
  attention_weights(head.inputs(), rectangle, head.options(execution), weights);
  Tensor pairs(DType::kInt64, weights.shape());
  std::vector<std::uint8_t> visible(static_cast<std::size_t>(keys.size()), 1);
  const VisiblePairs pairs_seen(head.options());
  for (std::int64_t i = 0; i < queries.size(); ++i) {
    pairs_seen.fill(head.at(queries.begin + i, keys.begin), keys.size(), visible.data());
    std::copy(visible.begin(), visible.end(), pairs.span<std::int64_t>().begin() + i * keys.size());
  }
  return encode_cells(weights, pairs);
}

}  // namespace fovea::view
