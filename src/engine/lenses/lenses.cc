// SPDX-License-Identifier: Apache-2.0
//
// Validation and setup of lenses, and pooled maps (lenses.h).

#include "engine/lenses/lenses.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "core/element_type.h"
#include "core/fail.h"
#include "engine/call/parallel.h"
#include "engine/call/rows.h"
#include "kernels/forward/forward.h"

namespace fovea {

const char* pool_name(Pool pool) {
  switch (pool) {
    case Pool::kMean:
      return "mean";
    case Pool::kMax:
      return "max";
    case Pool::kSum:
      break;
  }
  return "sum";
}

}  // namespace fovea

namespace fovea::engine {
namespace {

// Few enough chunks that the partial rows at their boundaries take little memory, but enough to
// keep all threads busy.
constexpr std::int64_t kMaxChunks = 1024;

bool asked_for(const RowStatistics& rows) {
  return rows.entropy.defined() || rows.maximum.defined() || rows.maximum_key.defined() ||
         rows.mean_distance.defined() || rows.distance_variance.defined() ||
         rows.first_key.defined() || rows.mean_offset.defined();
}
bool asked_for(const TopKeys& top) { return top.keys.defined() || top.weights.defined(); }
bool asked_for(const PooledMap& map) { return map.cells.defined() || map.pairs.defined(); }
bool asks_for(const Lenses& lenses) {
  return asked_for(lenses.rows) || asked_for(lenses.top) || asked_for(lenses.map);
}

void check_rows(const Problem& problem, const RowStatistics& rows, OutputChecks& checks) {
  const ProblemShape& shape = problem.shape;
  const auto check = [&](const MutableTensorView& output, std::string_view name, OutputType type) {
    checks.add(output, {.name = name,
                        .shape = {shape.batch, shape.q_heads, shape.q_len},
                        .shape_name = "[batch, q_heads, q_len]",
                        .type = type,
                        .contiguous_rows = false});
  };
  check(rows.entropy, "rows.entropy", OutputType::kSums);
  check(rows.maximum, "rows.maximum", OutputType::kSums);
  check(rows.maximum_key, "rows.maximum_key", OutputType::kNumbers);
  check(rows.mean_distance, "rows.mean_distance", OutputType::kSums);
  check(rows.distance_variance, "rows.distance_variance", OutputType::kSums);
  check(rows.first_key, "rows.first_key", OutputType::kSums);
  check(rows.mean_offset, "rows.mean_offset", OutputType::kSums);
}

std::int64_t top_count(const TopKeys& top) {
  const MutableTensorView& either = top.keys.defined() ? top.keys : top.weights;
  return either.defined() ? either.extent(3) : 0;
}

void check_top(const Problem& problem, const TopKeys& top, OutputChecks& checks) {
  if (!asked_for(top)) return;
  const ProblemShape& shape = problem.shape;
  const MutableTensorView& either = top.keys.defined() ? top.keys : top.weights;
  const std::string_view name = top.keys.defined() ? "top.keys" : "top.weights";
  if (either.rank() != 4) {
    fail_argument(name, "expected [batch, q_heads, q_len, k], got {}", to_string(either.shape()));
  }
  const std::int64_t k = top_count(top);
  if (k < 1 || k > kMaxTopKeys) {
    fail_argument(name, "expected k from 1 to {}, got {}", kMaxTopKeys, k);
  }
  if (k > shape.kv_len)
    fail_argument(name, "expected k of at most kv_len = {}, got {}", shape.kv_len, k);
  const Shape expected{shape.batch, shape.q_heads, shape.q_len, k};
  checks.add(top.keys, {.name = "top.keys",
                        .shape = expected,
                        .shape_name = "[batch, q_heads, q_len, k]",
                        .type = OutputType::kNumbers});
  checks.add(top.weights, {.name = "top.weights",
                           .shape = expected,
                           .shape_name = "[batch, q_heads, q_len, k]",
                           .type = OutputType::kSums});
}

}  // namespace

const Lenses& lenses_of(const AttentionOutputs& outputs) {
  static const Lenses kNone;
  return outputs.lenses == nullptr ? kNone : *outputs.lenses;
}

bool asks_for_lenses(const AttentionOutputs& outputs) {
  return outputs.lenses != nullptr && asks_for(*outputs.lenses);
}

bool asks_for_anything(const AttentionOutputs& outputs) {
  return outputs.context.defined() || outputs.lse.defined() || asks_for_lenses(outputs);
}

void validate_lenses(const Problem& problem, const Lenses& lenses, OutputChecks& checks) {
  if (!asks_for(lenses)) return;
  if (problem.options.dropout.probability > 0) {
    fail_argument("dropout", "expected none with lenses, got {}",
                  problem.options.dropout.probability);
  }
  if (problem.shape.kv_len > std::numeric_limits<std::int32_t>::max()) {
    fail_argument("kv_len", "expected at most {} with lenses, got {}",
                  std::numeric_limits<std::int32_t>::max(), problem.shape.kv_len);
  }
  check_rows(problem, lenses.rows, checks);
  check_top(problem, lenses.top, checks);
  if (asked_for(lenses.map) && problem.shape.sequences > 0) {
    fail_argument("map", "expected no packed sequences, got {}; documents() hides as much",
                  problem.shape.sequences);
  }
  const ProblemShape& shape = problem.shape;
  check_map(lenses.map, {shape.batch, shape.q_heads}, {shape.q_len, shape.kv_len}, checks);
}

void validate_outputs(const Problem& problem, const AttentionOutputs& outputs) {
  OutputChecks checks(problem);
  validate_outputs(problem, outputs, checks);
}

void validate_outputs(const Problem& problem, const AttentionOutputs& outputs,
                      OutputChecks& checks) {
  const ProblemShape& shape = problem.shape;
  checks.add(outputs.context,
             {.name = "context",
              .shape = {shape.batch, shape.q_heads, shape.q_len, problem.value_dim()},
              .shape_name = "[batch, q_heads, q_len, value_dim]"});
  checks.add(outputs.lse, {.name = "lse",
                           .shape = {shape.batch, shape.q_heads, shape.q_len},
                           .shape_name = "[batch, q_heads, q_len]",
                           .type = OutputType::kSums,
                           .contiguous_rows = false});
  if (outputs.lenses != nullptr) validate_lenses(problem, *outputs.lenses, checks);
}

CellDivision divide_rows(const PooledMap& map, std::int64_t queries) {
  const MutableTensorView& either = map.cells.defined() ? map.cells : map.pairs;
  return {queries, either.extent(either.rank() - 2), map.cell_queries};
}

CellDivision divide_columns(const PooledMap& map, std::int64_t keys) {
  const MutableTensorView& either = map.cells.defined() ? map.cells : map.pairs;
  return {keys, either.extent(either.rank() - 1), map.cell_keys};
}

void check_map(const PooledMap& map, const Shape& before, const MapOf& of, OutputChecks& checks) {
  if (!asked_for(map)) return;
  const MutableTensorView& either = map.cells.defined() ? map.cells : map.pairs;
  const std::string_view name = map.cells.defined() ? "map.cells" : "map.pairs";
  const char* const shape_name =
      before.rank() > 0 ? "[batch, q_heads, rows, columns]" : "[rows, columns]";
  if (either.rank() != before.rank() + 2) {
    fail_argument(name, "expected {}, got {}", shape_name, to_string(either.shape()));
  }
  const auto check_size = [&](int dim, std::string_view what, std::string_view most_name,
                              std::int64_t most) {
    const std::int64_t size = either.extent(before.rank() + dim);
    if (size < 1 || size > most) {
      fail_argument(name, "expected {} from 1 to {} = {}, got {}", what, most_name, most, size);
    }
  };
  const bool whole = before.rank() > 0;
  check_size(0, "rows", whole ? "q_len" : "queries", of.queries);
  check_size(1, "columns", whole ? "kv_len" : "keys", of.keys);
  const auto check_cells = [&](int dim, std::string_view what, std::string_view size_name,
                               std::int64_t size, std::int64_t length) {
    if (size < 0)
      fail_argument("map." + std::string(size_name), "expected 0 or more, got {}", size);
    if (size == 0) return;
    const std::int64_t cells = (length - 1) / size + 1;
    const std::int64_t got = either.extent(before.rank() + dim);
    if (got != cells) {
      fail_argument(name, "expected {} {} of {} = {}, got {}", cells, what, size_name, size, got);
    }
  };
  check_cells(0, "rows", "cell_queries", map.cell_queries, of.queries);
  check_cells(1, "columns", "cell_keys", map.cell_keys, of.keys);
  Shape expected = before;
  expected.push_back(either.extent(before.rank()));
  expected.push_back(either.extent(before.rank() + 1));
  checks.add(map.cells, {.name = "map.cells",
                         .shape = expected,
                         .shape_name = shape_name,
                         .type = OutputType::kSums});
  checks.add(map.pairs, {.name = "map.pairs",
                         .shape = expected,
                         .shape_name = shape_name,
                         .type = OutputType::kNumbers});
}

namespace {

/// Returns the number of queries in a panel of the forward pass.
std::int64_t panel_lanes(const Problem& problem) {
  const kernels::ForwardSetup setup{
      .options = &problem.options,
      .types = {problem.query.dtype(), problem.key.dtype(), problem.value.dtype()}};
  return kernels::forward_sizes(setup).panel_lanes;
}

}  // namespace

kernels::LensSetup lens_setup(const Problem& problem, const Lenses& lenses) {
  kernels::LensSetup setup;
  if (!asks_for(lenses)) return setup;
  setup.statistics = asked_for(lenses.rows);
  setup.top = top_count(lenses.top);
  if (lenses.map.cells.defined()) {
    setup.map = true;
    setup.pool = lenses.map.pool;
    setup.map_rows = divide_rows(lenses.map, problem.shape.q_len);
    setup.map_columns = divide_columns(lenses.map, problem.shape.kv_len);
    const std::int64_t lanes = panel_lanes(problem);
    const std::int64_t panels = (problem.shape.q_len + lanes - 1) / lanes;
    setup.chunk_panels = std::max<std::int64_t>(1, (panels + kMaxChunks - 1) / kMaxChunks);
  }
  return setup;
}

kernels::HeadLenses head_lenses(const Lenses& lenses, const SequenceSpan& span, std::int64_t head) {
  const auto rows = [&](const MutableTensorView& tensor) {
    return rows_of(tensor, span.batch, head, span.query_start);
  };
  kernels::HeadLenses to;
  to.entropy = rows(lenses.rows.entropy);
  to.maximum = rows(lenses.rows.maximum);
  to.maximum_key = rows(lenses.rows.maximum_key);
  to.mean_distance = rows(lenses.rows.mean_distance);
  to.distance_variance = rows(lenses.rows.distance_variance);
  to.first_key = rows(lenses.rows.first_key);
  to.mean_offset = rows(lenses.rows.mean_offset);
  to.top_keys = rows(lenses.top.keys);
  to.top_weights = rows(lenses.top.weights);
  to.q_len = span.q_len;
  return to;
}

Maps::Maps(const Problem& problem, const PooledMap& map, const kernels::LensSetup& setup)
    : problem_(problem), map_(map), setup_(setup) {
  if (!setup.map) return;
  const ProblemShape& shape = problem.shape;
  chunk_queries_ = setup.chunk_panels * panel_lanes(problem);
  edges_.resize(static_cast<std::size_t>(shape.batch * shape.q_heads * chunks() * 2 *
                                         setup.map_columns.cells()));
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (std::int64_t head = 0; head < shape.q_heads; ++head) {
      for (std::int64_t row = 0; row < setup.map_rows.cells(); ++row) {
        std::fill_n(&map.cells.at<float>({batch, head, row, 0}), setup.map_columns.cells(), 0.0f);
      }
    }
  }
}

std::int64_t Maps::chunks() const {
  return (problem_.shape.q_len + chunk_queries_ - 1) / chunk_queries_;
}

float* Maps::edges(std::int64_t batch, std::int64_t head) {
  return edges_.data() +
         (batch * problem_.shape.q_heads + head) * chunks() * 2 * setup_.map_columns.cells();
}

void Maps::place(std::int64_t batch, std::int64_t head, kernels::HeadLenses& to) {
  if (!setup_.map) return;
  to.map = &map_.cells.at<float>({batch, head, 0, 0});
  to.map_stride = map_.cells.strides()[2];
  to.map_edges = edges(batch, head);
}

void Maps::add_edges(std::int64_t batch, std::int64_t head, std::int64_t row) {
  const std::int64_t begin = setup_.map_rows.begin(row);
  const std::int64_t end = setup_.map_rows.begin(row + 1);
  const std::int64_t first = begin / chunk_queries_;
  const std::int64_t last = (end - 1) / chunk_queries_;
  if (first == last) return;
  float* const cells = &map_.cells.at<float>({batch, head, row, 0});
  const float* const from = edges(batch, head);
  const std::int64_t columns = setup_.map_columns.cells();
  for (std::int64_t c = 0; c < columns; ++c) {
    double sum = 0.0;
    float most = 0.0f;
    for (std::int64_t chunk = first; chunk <= last; ++chunk) {
      const bool began_before = begin < chunk * chunk_queries_;
      const float part = from[(chunk * 2 + (began_before ? 0 : 1)) * columns + c];
      sum += static_cast<double>(part);
      if (!(part <= most)) most = std::isnan(most) ? most : part;
    }
    cells[c] = setup_.pool == Pool::kMax ? most : static_cast<float>(sum);
  }
}

void Maps::finish() {
  if (setup_.map) {
    const ProblemShape& shape = problem_.shape;
    Execution execution = problem_.options.execution;
    execution.progress = nullptr;
    const std::int64_t rows = setup_.map_rows.cells();
    const std::int64_t items = shape.batch * shape.q_heads * rows;
    for_each_item(execution, thread_count(execution, items), items, [&](std::int64_t item, int) {
      const std::int64_t batch = item / (shape.q_heads * rows);
      const std::int64_t head = item / rows % shape.q_heads;
      add_edges(batch, head, item % rows);
    });
  }
  finish_maps(problem_, map_);
}

void count_row(const VisiblePairs& pairs_seen, const ScorePosition& row, std::int64_t kv_len,
               std::span<const std::int64_t> begins, std::span<std::int64_t> pairs,
               std::vector<std::uint8_t>& visible) {
  ScorePosition from = row;
  from.key = 0;
  KeyRange range = pairs_seen.mask().key_range(from, kv_len);
  range.begin = std::max(range.begin, begins.front());
  range.end = std::min(range.end, begins.back());
  if (range.begin >= range.end) return;
  const auto column_of = [&](std::int64_t key) {
    return static_cast<std::size_t>(std::upper_bound(begins.begin(), begins.end(), key) -
                                    begins.begin() - 1);
  };
  const std::size_t first = column_of(range.begin);
  const std::size_t last = column_of(range.end - 1);
  from.key = range.begin;
  if (range.exact && !pairs_seen.bias_hides_any(from, range.end - range.begin)) {
    // Adds whole columns, then corrects both ends. Compilers vectorise the loop, which has no
    // branches.
    for (std::size_t c = first; c <= last; ++c) pairs[c] += begins[c + 1] - begins[c];
    pairs[first] -= range.begin - begins[first];
    pairs[last] -= begins[last + 1] - range.end;
    return;
  }
  visible.resize(static_cast<std::size_t>(range.end - range.begin));
  pairs_seen.fill(from, range.end - range.begin, visible.data());
  for (std::size_t c = first; c <= last; ++c) {
    const auto begin = visible.begin() + (std::max(begins[c], range.begin) - range.begin);
    const auto end = visible.begin() + (std::min(begins[c + 1], range.end) - range.begin);
    pairs[c] += std::count_if(begin, end, [](std::uint8_t seen) { return seen != 0; });
  }
}

namespace {

bool counts_pairs(const PooledMap& map) {
  return map.pairs.defined() || (map.cells.defined() && map.pool == Pool::kMean);
}

void finish_map(const Problem& problem, const WeightTile& tile, const PooledMap& map) {
  const bool means = map.cells.defined() && map.pool == Pool::kMean;
  const CellDivision division = divide_rows(map, tile.queries);
  const CellDivision key_division = divide_columns(map, tile.keys);
  const std::int64_t rows = division.cells();
  const std::int64_t columns = key_division.cells();
  std::vector<std::int64_t> begins(static_cast<std::size_t>(columns + 1));
  for (std::int64_t c = 0; c <= columns; ++c) {
    begins[static_cast<std::size_t>(c)] = tile.first_key + key_division.begin(c);
  }
  const VisiblePairs pairs_seen(problem.options);
  Execution execution = problem.options.execution;
  execution.progress = nullptr;
  for_each_item(execution, thread_count(execution, rows), rows, [&](std::int64_t row, int) {
    std::vector<std::int64_t> pairs(static_cast<std::size_t>(columns));
    std::vector<std::uint8_t> visible;
    ScorePosition place{.batch = tile.batch,
                        .head = tile.head,
                        .offset = query_offset(problem.options, problem.shape, tile.batch)};
    const std::int64_t end = tile.first_query + division.begin(row + 1);
    for (place.query = tile.first_query + division.begin(row); place.query < end; ++place.query) {
      count_row(pairs_seen, place, problem.shape.kv_len, begins, pairs, visible);
    }
    // Uses addresses, because constructing an Index takes longer than the arithmetic of a cell.
    const auto each_cell = [&]<class T>(const MutableTensorView& tensor, T /*zero*/, auto&& visit) {
      T* const first = static_cast<T*>(tensor.address({row, 0}));
      for (std::int64_t c = 0; c < columns; ++c) {
        visit(first[c * tensor.strides()[1]], pairs[static_cast<std::size_t>(c)]);
      }
    };
    if (map.pairs.defined()) {
      each_cell(map.pairs, std::int64_t{},
                [](std::int64_t& cell, std::int64_t count) { cell = count; });
    }
    if (!means) return;
    with_element(map.cells.dtype(), [&](auto zero) {
      each_cell(map.cells, zero, [](auto& cell, std::int64_t count) {
        const auto sum = static_cast<double>(cell);
        const double mean = count == 0 ? std::nan("") : sum / static_cast<double>(count);
        cell = static_cast<decltype(zero)>(mean);
      });
    });
  });
}

}  // namespace

void finish_maps(const Problem& problem, const PooledMap& map) {
  if (!counts_pairs(map)) return;
  const auto of_head = [](const MutableTensorView& tensor, std::int64_t batch, std::int64_t head) {
    if (!tensor.defined()) return MutableTensorView();
    return MutableTensorView(tensor.address({batch, head, 0, 0}), tensor.dtype(),
                             {tensor.extent(2), tensor.extent(3)},
                             {tensor.strides()[2], tensor.strides()[3]});
  };
  const ProblemShape& shape = problem.shape;
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (std::int64_t head = 0; head < shape.q_heads; ++head) {
      finish_map(problem,
                 {.batch = batch, .head = head, .queries = shape.q_len, .keys = shape.kv_len},
                 {.cells = of_head(map.cells, batch, head),
                  .pairs = of_head(map.pairs, batch, head),
                  .pool = map.pool,
                  .cell_queries = map.cell_queries,
                  .cell_keys = map.cell_keys});
    }
  }
}

void finish_tile(const Problem& problem, const WeightTile& tile, const PooledMap& map) {
  if (counts_pairs(map)) finish_map(problem, tile, map);
}

}  // namespace fovea::engine
