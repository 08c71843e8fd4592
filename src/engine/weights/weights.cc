// SPDX-License-Identifier: Apache-2.0
//
// Recomputes rectangles of weights and scores (fovea/weights.h): validates the arguments, splits
// the rectangle into work items, and computes them in parallel.

#include "fovea/weights.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fovea/reference.h"

#include "core/fail.h"
#include "engine/call/contiguous.h"
#include "engine/call/outputs.h"
#include "engine/lenses/lenses.h"
#include "engine/weights/weights_call.h"
#include "reference/lenses.h"

namespace fovea {
namespace engine {

void check_tile(const ProblemShape& shape, const WeightTile& tile) {
  const auto check_range = [](std::string_view name, std::int64_t first, std::int64_t count,
                              std::string_view most_name, std::int64_t most) {
    if (count < 1 || first < 0 || first > most - count) {
      fail_argument("tile." + std::string(name),
                    "expected a range within {} = {} of at least 1, got {} from {} on", most_name,
                    most, count, first);
    }
  };
  check_index("tile.batch", tile.batch, "batch", shape.batch);
  check_index("tile.head", tile.head, "q_heads", shape.q_heads);
  check_range("queries", tile.first_query, tile.queries, "q_len", shape.q_len);
  check_range("keys", tile.first_key, tile.keys, "kv_len", shape.kv_len);
}

namespace {

// Approximate number of weights per work item: few enough to react quickly to a stop request.
constexpr std::int64_t kItemWeights = 1 << 22;
// Maximum number of panels whose partial cells are buffered before they are added up.
constexpr std::int64_t kPanelsTogether = 4;

/// Returns the number of queries per work item of a rectangle, a multiple of the panel size.
std::int64_t queries_per_item(const WeightTile& tile) {
  const std::int64_t lanes = kernels::panel_lanes();
  return std::max<std::int64_t>(1, kItemWeights / tile.keys / lanes) * lanes;
}

void rectangle(const WeightInputs& inputs, const Problem& problem, const WeightTile& tile,
               bool scores, const MutableTensorView& numbers) {
  const WeightsCall call(inputs, problem);
  // Limit the item size so that every thread gets an item, if there are enough panels.
  const std::int64_t lanes = kernels::panel_lanes();
  const std::int64_t panels = (tile.queries + lanes - 1) / lanes;
  const std::int64_t threads = thread_count(problem.options.execution, panels);
  const std::int64_t each =
      std::min(queries_per_item(tile), (panels + threads - 1) / threads * lanes);
  const std::int64_t items = (tile.queries + each - 1) / each;
  call.run(items, [&](std::int64_t number, std::byte* scratch) {
    kernels::WeightsItem item = call.item(tile.batch, tile.head);
    item.q_begin = tile.first_query + number * each;
    item.q_end = std::min(item.q_begin + each, tile.first_query + tile.queries);
    item.k_begin = tile.first_key;
    item.k_end = tile.first_key + tile.keys;
    item.numbers = &numbers.at<float>({number * each, 0});
    item.stride = numbers.strides()[0];
    item.scores = scores;
    call.run_item(item, scratch);
  });
}

/// Computes weights or scores with the reference implementation, one row at a time.
void rectangle_float64(const Problem& problem, const WeightTile& tile, bool scores,
                       const MutableTensorView& numbers) {
  const Contiguous query(problem.query), key(problem.key);
  const reference::Inputs all{query.view(), key.view(), key.view()};
  const Execution& execution = problem.options.execution;
  for_each_item(
      execution, thread_count(execution, tile.queries), tile.queries,
      [&](std::int64_t number, int) {
        const reference::Row row{tile.batch, tile.head, tile.first_query + number};
        const reference::Rows found =
            reference::attention_rows(all, problem.options, std::span(&row, 1));
        const Tensor& row_numbers = scores ? found.scores : found.weights;
        for (std::int64_t j = 0; j < tile.keys; ++j) {
          numbers.at<double>({number, j}) = row_numbers.at<double>({0, tile.first_key + j});
        }
      });
}

void pooled_float64(const Problem& problem, const WeightTile& tile, const PooledMap& map) {
  const Contiguous query(problem.query), key(problem.key);
  const reference::Inputs all{query.view(), key.view(), key.view()};
  const CellDivision division = divide_rows(map, tile.queries);
  const std::int64_t rows = division.cells();
  const Execution& execution = problem.options.execution;
  for_each_item(execution, thread_count(execution, rows), rows, [&](std::int64_t r, int) {
    reference::MapRow cells(divide_columns(map, tile.keys), map.pool);
    for (std::int64_t q = division.begin(r); q < division.begin(r + 1); ++q) {
      if (execution.stop.stop_requested()) return;
      const reference::Row row{tile.batch, tile.head, tile.first_query + q};
      const reference::Rows found =
          reference::attention_rows(all, problem.options, std::span(&row, 1));
      cells.add(found.weights.span<double>().subspan(static_cast<std::size_t>(tile.first_key),
                                                     static_cast<std::size_t>(tile.keys)));
    }
    for (std::int64_t c = 0; c < map.cells.extent(1); ++c) {
      map.cells.at<double>({r, c}) = cells.cells()[static_cast<std::size_t>(c)];
    }
  });
}

/// Validates the arguments and computes weights. If `scores` is true, computes scores instead,
/// which need no lse.
void compute_rectangle(const WeightInputs& inputs, const WeightTile& tile,
                       const AttentionOptions& options, bool scores,
                       const MutableTensorView& numbers) {
  const Problem problem = weights_problem(inputs, options);
  if (!scores) check_lse(problem, inputs.lse);
  check_tile(problem.shape, tile);
  OutputChecks checks(problem);
  checks.add(numbers, {.name = scores ? "scores" : "weights",
                       .shape = {tile.queries, tile.keys},
                       .shape_name = "[queries, keys]",
                       .type = OutputType::kSums});
  if (!numbers.defined()) return;
  if (problem.is_float64()) {
    rectangle_float64(problem, tile, scores, numbers);
  } else {
    rectangle(inputs, problem, tile, scores, numbers);
  }
}

}  // namespace

void pool_tile(const WeightInputs& inputs, const Problem& problem, const WeightTile& tile,
               const TileCells& cells, const WriteCells& write) {
  const WeightsCall call(inputs, problem);
  const std::int64_t lanes = kernels::panel_lanes();
  const std::int64_t most_queries = kPanelsTogether * lanes;
  // Queries and keys of the division that are before the tile's.
  const std::int64_t query_shift = cells.first_query - tile.first_query;
  const std::int64_t key_shift = cells.first_key - tile.first_key;
  const std::int64_t end_query = tile.first_query + tile.queries;
  const std::int64_t end_key = tile.first_key + tile.keys;
  const std::int64_t begin_row = cells.rows.of(cells.first_query);
  const std::int64_t end_row = cells.rows.of(end_query + query_shift - 1) + 1;
  const std::int64_t begin_column = cells.columns.of(cells.first_key);
  const std::int64_t columns = cells.columns.of(end_key + key_shift - 1) + 1 - begin_column;
  // Each item computes whole rows of cells, with enough queries to fill a few panels.
  const std::int64_t together = std::clamp<std::int64_t>(
      most_queries * (end_row - begin_row) / tile.queries, 1, end_row - begin_row);
  const std::int64_t items = (end_row - begin_row + together - 1) / together;
  call.run(items, [&](std::int64_t number, std::byte* scratch) {
    const std::int64_t first_row = begin_row + number * together;
    const std::int64_t last_row = std::min(first_row + together, end_row);
    const auto query_of_row = [&](std::int64_t row) {
      return std::clamp(cells.rows.begin(row) - query_shift, tile.first_query, end_query);
    };
    const std::int64_t last_query = query_of_row(last_row);
    std::vector<double> sums(static_cast<std::size_t>((last_row - first_row) * columns));
    std::vector<float> pooled(static_cast<std::size_t>(most_queries * kWeightBlockKeys));
    std::vector<std::int64_t> column_begin;
    kernels::WeightsItem item = call.item(tile.batch, tile.head);
    item.cells = pooled.data();
    item.pool = cells.pool;
    for (std::int64_t query = query_of_row(first_row), queries = 0; query < last_query;
         query += queries) {
      queries = std::min(most_queries, last_query - query);
      item.q_begin = query;
      item.q_end = query + queries;
      for (std::int64_t key = tile.first_key, keys = 0; key < end_key; key += keys) {
        // End blocks at block boundaries of the whole matrix. Otherwise, each block of the tile
        // would span two blocks of the matrix.
        keys = std::min(kWeightBlockKeys - key % kWeightBlockKeys, end_key - key);
        item.k_begin = key;
        item.k_end = key + keys;
        // Blocks without a visible pair would only add zeros, after packing their keys.
        ScorePosition first = item.head.origin;
        first.query = item.q_begin;
        first.key = item.k_begin;
        const ScoreBlock block = {.first = first, .queries = queries, .keys = keys};
        if (problem.options.mask.classify(block) == Visibility::kNone) continue;
        const std::int64_t first_column = cells.columns.of(key + key_shift);
        item.columns = cells.columns.of(key + keys + key_shift - 1) + 1 - first_column;
        column_begin.clear();
        for (std::int64_t c = 0; c <= item.columns; ++c) {
          const std::int64_t begin = cells.columns.begin(first_column + c) - key_shift;
          column_begin.push_back(std::clamp(begin, key, key + keys));
        }
        item.column_begin = column_begin.data();
        call.run_item(item, scratch);
        for (std::int64_t q = 0; q < queries;) {
          // Some queries of one panel and one row of cells.
          const std::int64_t panel = q / lanes * lanes;
          const std::int64_t row = cells.rows.of(query + q + query_shift);
          const std::int64_t end =
              std::min({panel + lanes, queries, query_of_row(row + 1) - query});
          double* const to =
              sums.data() + (row - first_row) * columns + first_column - begin_column;
          for (std::int64_t c = 0; c < item.columns; ++c) {
            const float* const from = pooled.data() + panel * item.columns + c * lanes - panel;
            for (std::int64_t i = q; i < end; ++i) {
              add_to_cell(cells.pool, static_cast<double>(from[i]), to[c]);
            }
          }
          q = end;
        }
      }
    }
    write(first_row, begin_column, columns, sums);
  });
}

}  // namespace engine

void attention_weights(const WeightInputs& inputs, const WeightTile& tile,
                       const AttentionOptions& options, const MutableTensorView& weights) {
  engine::compute_rectangle(inputs, tile, options, false, weights);
}

void attention_scores(const WeightInputs& inputs, const WeightTile& tile,
                      const AttentionOptions& options, const MutableTensorView& scores) {
  engine::compute_rectangle({inputs.query, inputs.key, {}}, tile, options, true, scores);
}

void attention_weights(const WeightInputs& inputs, const WeightTile& tile,
                       const AttentionOptions& options, const PooledMap& map) {
  const engine::Problem problem = engine::weights_problem(inputs, options);
  engine::check_lse(problem, inputs.lse);
  engine::check_tile(problem.shape, tile);
  engine::OutputChecks checks(problem);
  engine::check_map(map, {}, {tile.queries, tile.keys}, checks);
  if (map.cells.defined()) {
    if (problem.is_float64()) {
      engine::pooled_float64(problem, tile, map);
    } else {
      const engine::TileCells cells{engine::divide_rows(map, tile.queries),
                                    engine::divide_columns(map, tile.keys), map.pool};
      engine::pool_tile(inputs, problem, tile, cells,
                        [&](std::int64_t first_row, std::int64_t, std::int64_t columns,
                            std::span<const double> sums) {
                          for (std::size_t i = 0; i < sums.size(); ++i) {
                            const auto at = static_cast<std::int64_t>(i);
                            map.cells.at<float>({first_row + at / columns, at % columns}) =
                                static_cast<float>(sums[i]);
                          }
                        });
    }
  }
  engine::finish_tile(problem, tile, map);
}

}  // namespace fovea
