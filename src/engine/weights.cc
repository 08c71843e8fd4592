// SPDX-License-Identifier: Apache-2.0
//
// Weights found again (fovea/weights.h): check, cut, compute on threads.

#include "fovea/weights.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "fovea/error.h"
#include "fovea/reference.h"

#include "core/cells.h"
#include "engine/contiguous.h"
#include "engine/lenses.h"
#include "engine/outputs.h"
#include "engine/parallel.h"
#include "engine/problem.h"
#include "engine/rows.h"
#include "engine/workspace.h"
#include "kernels/target.h"
#include "kernels/weights.h"
#include "reference/lenses.h"

namespace fovea {
namespace engine {
namespace {

// Keys of a block, and so of an item that looks at columns: their vectors of sums and packed keys
// share the second cache with a panel of scores.
constexpr std::int64_t kBlockKeys = 512;
// Weights that an item of a rectangle has, about, so that a stop is soon heard.
constexpr std::int64_t kItemWeights = 1 << 22;
// Panels whose weights are there together before they are pooled.
constexpr std::int64_t kPanelsTogether = 4;
constexpr std::int64_t kMostBins = 4096;

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw InvalidArgument(fmt::format(format, std::forward<Args>(args)...));
}

/// Keys stand for the values, which nobody looks at.
Problem weights_problem(const WeightInputs& inputs, const AttentionOptions& options) {
  if (!inputs.key.defined()) fail("key: expected a tensor, got nothing");
  Problem problem = make_problem(inputs.query, inputs.key, inputs.key, options);
  if (problem.shape.sequences > 0) {
    fail("sequences: expected none where weights are found again, got {}", problem.shape.sequences);
  }
  if (options.dropout.probability > 0) {
    fail("dropout: expected none where weights are found again, got {}",
         options.dropout.probability);
  }
  return problem;
}

void check_lse(const Problem& problem, const TensorView& lse) {
  const ProblemShape& shape = problem.shape;
  const Shape expected{shape.batch, shape.q_heads, shape.q_len};
  if (!lse.defined() || lse.shape() != expected) {
    fail("lse: expected [batch, q_heads, q_len] = {}, got {}", to_string(expected),
         lse.defined() ? to_string(lse.shape()) : "nothing");
  }
  const DType type = problem.is_float64() ? DType::kFloat64 : DType::kFloat32;
  if (lse.dtype() != type) {
    fail("lse: expected {} for inputs of {}, got {}", dtype_name(type),
         dtype_name(problem.query.dtype()), dtype_name(lse.dtype()));
  }
}

void check_tile(const ProblemShape& shape, const WeightTile& tile) {
  const auto check_index = [](std::string_view name, std::int64_t index, std::string_view most_name,
                              std::int64_t most) {
    if (index < 0 || index >= most) {
      fail("tile.{}: expected 0 or more and less than {} = {}, got {}", name, most_name, most,
           index);
    }
  };
  const auto check_range = [](std::string_view name, std::int64_t first, std::int64_t count,
                              std::string_view most_name, std::int64_t most) {
    if (count < 1 || first < 0 || first > most - count) {
      fail("tile.{}: expected a range within {} = {} of at least 1, got {} from {} on", name,
           most_name, most, count, first);
    }
  };
  check_index("batch", tile.batch, "batch", shape.batch);
  check_index("head", tile.head, "q_heads", shape.q_heads);
  check_range("queries", tile.first_query, tile.queries, "q_len", shape.q_len);
  check_range("keys", tile.first_key, tile.keys, "kv_len", shape.kv_len);
}

class WeightsCall {
 public:
  WeightsCall(const WeightInputs& inputs, const Problem& problem)
      : inputs_(inputs), problem_(problem) {
    kernels::choose_target();
    setup_.options = &problem.options;
    setup_.types = {problem.query.dtype(), problem.key.dtype(), problem.key.dtype()};
    setup_.q_heads = problem.shape.q_heads;
    setup_.head_dim = problem.head_dim();
    setup_.block_keys = kBlockKeys;
    setup_.most_keys = kBlockKeys;
    setup_.most_panels = 1;
    setup_.scale = problem.scale();
    scratch_bytes_ = kernels::weights_scratch_bytes(setup_);
  }

  kernels::WeightsItem item(std::int64_t batch, std::int64_t head) const {
    const ProblemShape& shape = problem_.shape;
    const SequenceSpan span = sequence_span(problem_.options, shape, batch);
    const std::int64_t kv_head = head / (shape.q_heads / shape.kv_heads);
    kernels::WeightsItem item;
    item.head.origin = {
        .batch = batch, .head = head, .offset = query_offset(problem_.options, shape, batch)};
    item.head.kv_len = span.kv_len;
    item.head.query = rows_of(problem_.query, batch, head, 0);
    item.head.key = rows_of(problem_.key, batch, kv_head, 0);
    item.head.bias = bias_rows(problem_.options.score.bias, span, head);
    item.q_end = shape.q_len;
    item.k_end = shape.kv_len;
    if (inputs_.lse.defined()) {
      item.lse = &inputs_.lse.at<float>({batch, head, 0});
      item.lse_stride = inputs_.lse.strides()[2];
    } else {
      // Of scores nothing is subtracted.
      static constexpr float kNothing = 0.0f;
      item.lse = &kNothing;
    }
    return item;
  }

  /// Calls work(number, scratch) for items from 0 to `items`.
  template <class Work>
  void run(std::int64_t items, const Work& work) const {
    const Execution& execution = problem_.options.execution;
    const int threads = thread_count(execution, items);
    const Workspace workspace({}, static_cast<std::size_t>(threads) * scratch_bytes_);
    for_each_item(execution, threads, items, [&](std::int64_t number, int thread) {
      work(number, workspace.data() + static_cast<std::size_t>(thread) * scratch_bytes_);
    });
  }
  void run_item(const kernels::WeightsItem& item, std::byte* scratch) const {
    kernels::weights_item(setup_, item, scratch, problem_.options.execution.stop);
  }

 private:
  const WeightInputs& inputs_;
  const Problem& problem_;
  kernels::WeightsSetup setup_;
  std::size_t scratch_bytes_ = 0;
};

/// How many queries of a rectangle make an item: whole panels.
std::int64_t queries_per_item(const WeightTile& tile) {
  const std::int64_t lanes = kernels::panel_lanes();
  return std::max<std::int64_t>(1, kItemWeights / tile.keys / lanes) * lanes;
}

void rectangle(const WeightInputs& inputs, const Problem& problem, const WeightTile& tile,
               bool scores, const MutableTensorView& numbers) {
  const WeightsCall call(inputs, problem);
  // At least two items where there are two threads and more than a panel each.
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

/// Rows of the reference's weights or, where these are asked for, scores.
void rectangle_float64(const Problem& problem, const WeightTile& tile, bool scores,
                       const MutableTensorView& numbers) {
  const Contiguous query(problem.query), key(problem.key);
  const reference::Inputs all{query.view(), key.view(), key.view()};
  const Execution& execution = problem.options.execution;
  for_each_item(execution, thread_count(execution, tile.queries), tile.queries,
                [&](std::int64_t number, int) {
                  const reference::Row row{tile.batch, tile.head, tile.first_query + number};
                  const reference::Rows found =
                      reference::attention_rows(all, problem.options, std::span(&row, 1));
                  for (std::int64_t j = 0; j < tile.keys; ++j) {
                    const double weight = found.weights.at<double>({0, tile.first_key + j});
                    numbers.at<double>({number, j}) =
                        scores ? std::log(weight) + found.lse.at<double>({0}) : weight;
                  }
                });
}

/// Some rows of cells in the making.
class Cells {
 public:
  Cells(const WeightTile& tile, const PooledMap& map, std::int64_t first_row, std::int64_t last_row)
      : tile_(tile),
        map_(map),
        first_row_(first_row),
        sums_(static_cast<std::size_t>((last_row - first_row) * map.cells.extent(1))),
        row_(kBlockKeys) {}

  /// Adds `keys` weights, at most kBlockKeys, of `queries` rows; both are numbered as in the tile.
  void add(std::int64_t first_query, std::int64_t queries, std::int64_t first_key,
           std::int64_t keys, const float* weights) {
    const std::int64_t rows = map_.cells.extent(0);
    for (std::int64_t q = first_query; q < first_query + queries;) {
      const std::int64_t row = cell_of(q, tile_.queries, rows);
      const std::int64_t end =
          std::min(cell_begin(row + 1, tile_.queries, rows), first_query + queries);
      // Over rows first, where neighbours do not wait for each other.
      std::fill_n(row_.begin(), keys, 0.0f);
      for (; q < end; ++q) pool_row(weights + (q - first_query) * keys, keys);
      add_columns(row, first_key, keys);
    }
  }

  void write() const {
    const std::int64_t columns = map_.cells.extent(1);
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      map_.cells.at<float>({first_row_ + at / columns, at % columns}) =
          static_cast<float>(sums_[i]);
    }
  }

 private:
  void pool_row(const float* from, std::int64_t keys) {
    float* const to = row_.data();
    if (map_.pool != Pool::kMax) {
      for (std::int64_t j = 0; j < keys; ++j) to[j] += from[j];
    } else {
      // A nan stays one.
      for (std::int64_t j = 0; j < keys; ++j)
        to[j] = from[j] <= to[j] || to[j] != to[j] ? to[j] : from[j];
    }
  }

  void add_columns(std::int64_t row, std::int64_t first_key, std::int64_t keys) {
    const std::int64_t columns = map_.cells.extent(1);
    double* const sums = sums_.data() + (row - first_row_) * columns;
    for (std::int64_t j = first_key; j < first_key + keys;) {
      const std::int64_t column = cell_of(j, tile_.keys, columns);
      const std::int64_t end =
          std::min(cell_begin(column + 1, tile_.keys, columns), first_key + keys);
      double& sum = sums[column];
      for (; j < end; ++j) {
        const auto one = static_cast<double>(row_[static_cast<std::size_t>(j - first_key)]);
        if (map_.pool != Pool::kMax) {
          sum += one;
        } else if (!(one <= sum) && !std::isnan(sum)) {
          sum = one;
        }
      }
    }
  }

  const WeightTile& tile_;
  const PooledMap& map_;
  std::int64_t first_row_;
  std::vector<double> sums_;
  std::vector<float> row_;
};

void pooled(const WeightInputs& inputs, const Problem& problem, const WeightTile& tile,
            const PooledMap& map) {
  const WeightsCall call(inputs, problem);
  const std::int64_t rows = map.cells.extent(0);
  const std::int64_t most_queries = kPanelsTogether * kernels::panel_lanes();
  // Whole rows of cells, of enough queries to fill a few panels.
  const std::int64_t together =
      std::clamp<std::int64_t>(most_queries * rows / tile.queries, 1, rows);
  const std::int64_t items = (rows + together - 1) / together;
  call.run(items, [&](std::int64_t number, std::byte* scratch) {
    const std::int64_t first_row = number * together;
    const std::int64_t last_row = std::min(first_row + together, rows);
    const std::int64_t last_query = cell_begin(last_row, tile.queries, rows);
    Cells cells(tile, map, first_row, last_row);
    std::vector<float> weights(static_cast<std::size_t>(most_queries * kBlockKeys));
    kernels::WeightsItem item = call.item(tile.batch, tile.head);
    item.numbers = weights.data();
    std::int64_t query = cell_begin(first_row, tile.queries, rows);
    for (std::int64_t queries = 0; query < last_query; query += queries) {
      queries = std::min(most_queries, last_query - query);
      item.q_begin = tile.first_query + query;
      item.q_end = item.q_begin + queries;
      std::int64_t key = 0;
      for (std::int64_t keys = 0; key < tile.keys; key += keys) {
        // Blocks end where they do in the matrix, or each would take two.
        keys = std::min(kBlockKeys - (tile.first_key + key) % kBlockKeys, tile.keys - key);
        item.k_begin = tile.first_key + key;
        item.k_end = item.k_begin + keys;
        item.stride = keys;
        call.run_item(item, scratch);
        cells.add(query, queries, key, keys, weights.data());
      }
    }
    cells.write();
  });
}

void pooled_float64(const Problem& problem, const WeightTile& tile, const PooledMap& map) {
  const Contiguous query(problem.query), key(problem.key);
  const reference::Inputs all{query.view(), key.view(), key.view()};
  const std::int64_t rows = map.cells.extent(0);
  const Execution& execution = problem.options.execution;
  for_each_item(execution, thread_count(execution, rows), rows, [&](std::int64_t r, int) {
    reference::MapRow cells(map.cells.extent(1), map.pool);
    for (std::int64_t q = cell_begin(r, tile.queries, rows);
         q < cell_begin(r + 1, tile.queries, rows); ++q) {
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

// ---- what keys receive --------------------------------------------------------------------------

void check_received(const Problem& problem, const ReceivedAttention& received,
                    OutputChecks& checks) {
  const ProblemShape& shape = problem.shape;
  const auto check = [&](const MutableTensorView& output, std::string_view name) {
    checks.add(output, {.name = name,
                        .shape = {shape.batch, shape.q_heads, shape.kv_len},
                        .shape_name = "[batch, q_heads, kv_len]",
                        .type = OutputType::kSums});
  };
  check(received.sum, "sum");
  check(received.largest, "largest");
  check(received.recent, "recent");
  if (received.recent.defined() &&
      (received.recent_queries < 1 || received.recent_queries > shape.q_len)) {
    fail("recent_queries: expected 1 to q_len = {}, got {}", shape.q_len, received.recent_queries);
  }
  if (!received.histogram.defined()) return;
  const MutableTensorView& histogram = received.histogram;
  if (histogram.rank() != 3 || histogram.extent(2) < 1 || histogram.extent(2) > kMostBins) {
    fail("histogram: expected [batch, q_heads, bins] with 1 to {} bins, got {}", kMostBins,
         to_string(histogram.shape()));
  }
  checks.add(histogram, {.name = "histogram",
                         .shape = {shape.batch, shape.q_heads, histogram.extent(2)},
                         .shape_name = "[batch, q_heads, bins]",
                         .type = OutputType::kNumbers});
}

std::int64_t bins_of(const ReceivedAttention& received) {
  return received.histogram.defined() ? received.histogram.extent(2) : 0;
}

void clear_histogram(const ReceivedAttention& received) {
  if (!received.histogram.defined()) return;
  for_each_index(received.histogram.shape(),
                 [&](const Index& at) { received.histogram.at<std::int64_t>(at) = 0; });
}

void receive(const WeightInputs& inputs, const Problem& problem,
             const ReceivedAttention& received) {
  const WeightsCall call(inputs, problem);
  const ProblemShape& shape = problem.shape;
  const std::int64_t blocks = (shape.kv_len + kBlockKeys - 1) / kBlockKeys;
  const auto bins = static_cast<std::size_t>(bins_of(received));
  std::mutex adding;
  call.run(shape.batch * shape.q_heads * blocks, [&](std::int64_t number, std::byte* scratch) {
    const std::int64_t batch = number / (shape.q_heads * blocks);
    const std::int64_t head = number / blocks % shape.q_heads;
    kernels::WeightsItem item = call.item(batch, head);
    item.k_begin = number % blocks * kBlockKeys;
    item.k_end = std::min(item.k_begin + kBlockKeys, shape.kv_len);
    const auto place = [&](const MutableTensorView& tensor) {
      return tensor.defined() ? &tensor.at<float>({batch, head, item.k_begin}) : nullptr;
    };
    item.sums = place(received.sum);
    item.maxima = place(received.largest);
    item.recent = place(received.recent);
    item.recent_begin = shape.q_len - received.recent_queries;
    // Only the last queries count where nothing else is asked for.
    if (item.sums == nullptr && item.maxima == nullptr && bins == 0) {
      item.q_begin = item.recent_begin;
    }
    std::vector<std::int64_t> counts(bins);
    if (bins > 0) item.histogram = counts.data();
    item.bins = static_cast<std::int64_t>(bins);
    call.run_item(item, scratch);
    const std::lock_guard lock(adding);
    for (std::size_t b = 0; b < bins; ++b) {
      received.histogram.at<std::int64_t>({batch, head, static_cast<std::int64_t>(b)}) += counts[b];
    }
  });
}

void receive_float64(const Problem& problem, const ReceivedAttention& received) {
  const Contiguous query(problem.query), key(problem.key);
  const reference::Inputs all{query.view(), key.view(), key.view()};
  const ProblemShape& shape = problem.shape;
  const Execution& execution = problem.options.execution;
  const std::int64_t bins = bins_of(received);
  const std::int64_t items = shape.batch * shape.q_heads;
  for_each_item(execution, thread_count(execution, items), items, [&](std::int64_t item, int) {
    const std::int64_t batch = item / shape.q_heads;
    const std::int64_t head = item % shape.q_heads;
    for (std::int64_t q = 0; q < shape.q_len; ++q) {
      const reference::Row row{batch, head, q};
      const reference::Rows found =
          reference::attention_rows(all, problem.options, std::span(&row, 1));
      ScorePosition place = found.places.front();
      for (std::int64_t j = 0; j < shape.kv_len; ++j) {
        const double weight = found.weights.at<double>({0, j});
        const Index at{batch, head, j};
        const auto add = [&](const MutableTensorView& to) {
          if (to.defined()) to.at<double>(at) = (q == 0 ? 0.0 : to.at<double>(at)) + weight;
        };
        add(received.sum);
        if (received.largest.defined()) {
          double& most = received.largest.at<double>(at);
          if (q == 0) most = 0.0;
          if (!(weight <= most) && !std::isnan(most)) most = weight;
        }
        if (received.recent.defined()) {
          double& sum = received.recent.at<double>(at);
          if (q == 0) sum = 0.0;
          if (q >= shape.q_len - received.recent_queries) sum += weight;
        }
        place.key = j;
        if (bins == 0 || std::isnan(weight) || !problem.options.mask.visible(place)) continue;
        const double size = weight > 0.0 ? -std::log2(weight) : static_cast<double>(bins);
        const auto bin =
            static_cast<std::int64_t>(std::clamp(size, 0.0, static_cast<double>(bins - 1)));
        ++received.histogram.at<std::int64_t>({batch, head, bin});
      }
    }
  });
}

}  // namespace
}  // namespace engine

void attention_weights(const WeightInputs& inputs, const WeightTile& tile,
                       const AttentionOptions& options, const MutableTensorView& weights) {
  const engine::Problem problem = engine::weights_problem(inputs, options);
  engine::check_lse(problem, inputs.lse);
  engine::check_tile(problem.shape, tile);
  engine::OutputChecks checks(problem);
  checks.add(weights, {.name = "weights",
                       .shape = {tile.queries, tile.keys},
                       .shape_name = "[queries, keys]",
                       .type = engine::OutputType::kSums});
  if (!weights.defined()) return;
  if (problem.is_float64()) {
    engine::rectangle_float64(problem, tile, false, weights);
  } else {
    engine::rectangle(inputs, problem, tile, false, weights);
  }
}

void attention_scores(const WeightInputs& inputs, const WeightTile& tile,
                      const AttentionOptions& options, const MutableTensorView& scores) {
  const WeightInputs without_lse{inputs.query, inputs.key, {}};
  const engine::Problem problem = engine::weights_problem(without_lse, options);
  engine::check_tile(problem.shape, tile);
  engine::OutputChecks checks(problem);
  checks.add(scores, {.name = "scores",
                      .shape = {tile.queries, tile.keys},
                      .shape_name = "[queries, keys]",
                      .type = engine::OutputType::kSums});
  if (!scores.defined()) return;
  if (problem.is_float64()) {
    engine::rectangle_float64(problem, tile, true, scores);
  } else {
    engine::rectangle(without_lse, problem, tile, true, scores);
  }
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
      engine::pooled(inputs, problem, tile, map);
    }
  }
  engine::finish_map(problem, tile, map);
}

void attention_received(const WeightInputs& inputs, const AttentionOptions& options,
                        const ReceivedAttention& received) {
  const engine::Problem problem = engine::weights_problem(inputs, options);
  engine::check_lse(problem, inputs.lse);
  engine::OutputChecks checks(problem);
  engine::check_received(problem, received, checks);
  if (!received.sum.defined() && !received.largest.defined() && !received.recent.defined() &&
      !received.histogram.defined()) {
    return;
  }
  engine::clear_histogram(received);
  if (problem.is_float64()) {
    engine::receive_float64(problem, received);
  } else {
    engine::receive(inputs, problem, received);
  }
}

}  // namespace fovea
