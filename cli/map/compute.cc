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
#include "problem/part.h"

namespace fovea::cli {
namespace {

/// The wanted rows of the head.
ProblemPart part_of(const AttendInputs& inputs, const AttendRules& rules,
                    const MapRequest& request) {
  return {rules.options(),
          inputs.shape,
          {.item = request.batch,
           .head = request.head,
           .first_query = request.queries.begin,
           .queries = request.queries.size()}};
}

/// Weights ask for no value: none has a dim.
TensorView no_value(const TensorView& key) {
  Shape shape = key.shape();
  shape[3] = 0;
  return {key.data(), key.dtype(), shape, key.strides()};
}

double flop_of(const ProblemPart& part, const AttendInputs& inputs) {
  return useful_flop(part.shape(), inputs.head_dim(), part.options());
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
  const ProblemPart part = part_of(inputs, rules, request);
  const TensorView query = part.queries_of(inputs.query.view);
  const TensorView key = part.keys_of(inputs.key.view);
  AttentionOptions options = part.options();
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
  attention_forward(query, key, no_value(key), options, outputs);
  const Shape matrix = {request.rows, request.columns};
  cells = std::move(cells).reshaped(matrix);
  pairs = std::move(pairs).reshaped(matrix);
  if (!all_keys) {
    attention_weights({.query = query, .key = key, .lse = lse}, tile_of(request), options,
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
  const double flop = flop_of(part_of(inputs, rules, request), inputs);
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
  const ProblemPart part = part_of(inputs, rules, request);
  AttentionOptions options = part.options();
  options.execution.threads = threads;
  const DType type = inputs.is_float64() ? DType::kFloat64 : DType::kFloat32;
  Tensor tile(type, {request.queries.size(), request.keys.size()});
  WeightInputs of = {.query = part.queries_of(inputs.query.view),
                     .key = part.keys_of(inputs.key.view)};
  try {
    if (what == TileOf::kScores) {
      attention_scores(of, tile_of(request), options, tile);
      return tile;
    }
    Tensor lse(type, {1, 1, request.queries.size()});
    CallProgress said(progress, flop_of(part, inputs));
    AttentionOptions whole = options;
    whole.execution.progress = [&](std::int64_t done, std::int64_t total) { said(done, total); };
    AttentionOutputs outputs;
    outputs.lse = lse;
    attention_forward(of.query, of.key, no_value(of.key), whole, outputs);
    progress.clear();
    of.lse = lse;
    attention_weights(of, tile_of(request), options, tile);
  } catch (const InvalidArgument& error) {
    throw in_words_of_options(error);
  }
  return tile;
}

}  // namespace fovea::cli
