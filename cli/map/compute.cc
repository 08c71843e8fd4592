// SPDX-License-Identifier: Apache-2.0
//
// The numbers of `fovea map` (map_compute.h). The head is computed as a problem by itself, with the
// rows that are wanted: all its keys in one fused pass, which pools the weights as it meets them.
// Some of the keys need the rows' lse first, and then cost what the rectangle costs. Of several
// heads one is computed after the other.

#include "cli/map/compute.h"

#include <chrono>

#include "fovea/attention.h"
#include "fovea/error.h"
#include "fovea/weights.h"

#include "cli/map/over_heads.h"
#include "cli/problem/call.h"
#include "cli/shell/call_progress.h"

namespace fovea::cli {
namespace {

/// Some rows of one head, as [1, 1, length, dim].
TensorView rows_of(const TensorView& tensor, std::int64_t batch, std::int64_t head, Span rows) {
  const TensorView one = tensor[batch][head];
  const TensorView part(one.size() > 0 ? one.address({rows.begin, 0}) : one.data(), one.dtype(),
                        {rows.size(), one.extent(1)}, one.strides());
  return TensorLayout{.rank = 2}.seen(part);
}

/// The wanted rows of the head.
AttendInputs part_of(const AttendInputs& inputs, const MapRequest& request) {
  const ProblemShape& shape = inputs.shape;
  const std::int64_t kv_head = request.head / (shape.q_heads / shape.kv_heads);
  AttendInputs part;
  part.query.view = rows_of(inputs.query.view, request.batch, request.head, request.queries);
  part.key.view = rows_of(inputs.key.view, request.batch, kv_head, {0, shape.kv_len});
  // Weights ask for no value: none has a dim.
  const TensorView& key = part.key.view;
  part.value.view = TensorView(key.data(), key.dtype(), {1, 1, shape.kv_len, 0}, key.strides());
  part.shape = {.batch = 1,
                .q_heads = 1,
                .kv_heads = 1,
                .q_len = request.queries.size(),
                .kv_len = shape.kv_len};
  return part;
}

/// For the same.
AttentionOptions options_of(const AttendInputs& inputs, const AttendRules& rules,
                            const MapRequest& request) {
  const std::int64_t offset = query_offset(rules.options(), inputs.shape, request.batch);
  return rules.options_of_rows(inputs.shape, request.batch, request.head, offset,
                               request.queries.begin, request.queries.end);
}

/// The rectangle within the wanted rows.
WeightTile tile_of(const MapRequest& request) {
  return {.queries = request.queries.size(),
          .first_key = request.keys.begin,
          .keys = request.keys.size()};
}

MapStatistics make_statistics(const MapRequest& request, DType type) {
  MapStatistics made;
  const Shape rows = {1, 1, request.queries.size()};
  if (request.statistics) {
    for (Tensor* tensor : {&made.entropy, &made.maximum, &made.mean_distance,
                           &made.distance_variance, &made.first_key}) {
      *tensor = Tensor(type, rows);
    }
    made.maximum_key = Tensor(DType::kInt64, rows);
  }
  if (request.top > 0) {
    const Shape each = {1, 1, request.queries.size(), request.top};
    made.top_keys = Tensor(DType::kInt64, each);
    made.top_weights = Tensor(type, each);
  }
  return made;
}

Lenses lenses_of(MapStatistics& statistics) {
  Lenses lenses;
  if (statistics.entropy.defined()) {
    lenses.rows = {.entropy = statistics.entropy,
                   .maximum = statistics.maximum,
                   .maximum_key = statistics.maximum_key,
                   .mean_distance = statistics.mean_distance,
                   .distance_variance = statistics.distance_variance,
                   .first_key = statistics.first_key};
  }
  if (statistics.top_keys.defined()) {
    lenses.top = {.keys = statistics.top_keys, .weights = statistics.top_weights};
  }
  return lenses;
}

/// Of one head; how long it took is not told.
MapResult compute_head(const AttendInputs& inputs, const AttendRules& rules,
                       const MapRequest& request, const Execution& execution) {
  const AttendInputs part = part_of(inputs, request);
  AttentionOptions options = options_of(inputs, rules, request);
  options.execution = execution;
  const DType type = inputs.is_float64() ? DType::kFloat64 : DType::kFloat32;
  const bool all_keys = request.keys.size() == inputs.shape.kv_len;
  MapResult result;
  result.statistics = make_statistics(request, type);
  Tensor cells(type, {1, 1, request.rows, request.columns});
  Tensor pairs(DType::kInt64, {1, 1, request.rows, request.columns});
  Lenses lenses = lenses_of(result.statistics);
  AttentionOutputs outputs;
  outputs.lenses = &lenses;
  Tensor lse;
  if (all_keys) {
    lenses.map = {.cells = cells, .pairs = pairs, .pool = request.pool};
  } else {
    lse = Tensor(type, {1, 1, request.queries.size()});
    outputs.lse = lse;
  }
  attention_forward(part.query.view, part.key.view, part.value.view, options, outputs);
  const Shape matrix = {request.rows, request.columns};
  cells = std::move(cells).reshaped(matrix);
  pairs = std::move(pairs).reshaped(matrix);
  if (!all_keys) {
    attention_weights({.query = part.query.view, .key = part.key.view, .lse = lse},
                      tile_of(request), options,
                      PooledMap{.cells = cells, .pairs = pairs, .pool = request.pool});
  }
  result.map = {.queries = request.queries,
                .keys = request.keys,
                .pool = request.pool,
                .cells = std::move(cells),
                .pairs = std::move(pairs)};
  return result;
}

}  // namespace

MapResult compute_map(const AttendInputs& inputs, const AttendRules& rules,
                      const MapRequest& request, int threads, Progress& progress) {
  const std::int64_t heads = request.heads ? inputs.shape.q_heads : 1;
  const double flop = useful_flop(part_of(inputs, request), options_of(inputs, rules, request));
  CallProgress said(progress, flop * static_cast<double>(heads));
  std::int64_t done_heads = 0;
  Execution execution;
  execution.threads = threads;
  execution.progress = [&](std::int64_t done, std::int64_t total) {
    said(done_heads * total + done, heads * total);
  };
  MapResult result;
  const auto start = std::chrono::steady_clock::now();
  try {
    if (request.heads) {
      MapOfHeads all(*request.heads);
      for (MapRequest one = request; done_heads < heads; ++done_heads) {
        one.head = done_heads;
        all.add(compute_head(inputs, rules, one, execution));
      }
      result = std::move(all).result(request);
    } else {
      result = compute_head(inputs, rules, request, execution);
    }
  } catch (const InvalidArgument& error) {
    throw in_words_of_options(error);
  }
  result.threads = threads_of(execution);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  progress.clear();
  return result;
}

Tensor compute_tile(const AttendInputs& inputs, const AttendRules& rules, const MapRequest& request,
                    TileOf what, int threads, Progress& progress) {
  const AttendInputs part = part_of(inputs, request);
  AttentionOptions options = options_of(inputs, rules, request);
  options.execution.threads = threads;
  const DType type = inputs.is_float64() ? DType::kFloat64 : DType::kFloat32;
  Tensor tile(type, {request.queries.size(), request.keys.size()});
  WeightInputs of = {.query = part.query.view, .key = part.key.view};
  try {
    if (what == TileOf::kScores) {
      attention_scores(of, tile_of(request), options, tile);
      return tile;
    }
    Tensor lse(type, {1, 1, request.queries.size()});
    CallProgress said(progress, useful_flop(part, options));
    AttentionOptions whole = options;
    whole.execution.progress = [&](std::int64_t done, std::int64_t total) { said(done, total); };
    AttentionOutputs outputs;
    outputs.lse = lse;
    attention_forward(part.query.view, part.key.view, part.value.view, whole, outputs);
    progress.clear();
    of.lse = lse;
    attention_weights(of, tile_of(request), options, tile);
  } catch (const InvalidArgument& error) {
    throw in_words_of_options(error);
  }
  return tile;
}

}  // namespace fovea::cli
