// SPDX-License-Identifier: Apache-2.0
//
// Computation of maps and tiles (compute.h).

#include "cli/map/compute.h"

#include "fovea/analysis.h"
#include "fovea/attention.h"
#include "fovea/error.h"
#include "fovea/weights.h"

#include "cli/problem/call.h"
#include "cli/problem/shards.h"
#include "cli/shell/call_progress.h"
#include "cli/shell/job.h"
#include "cli/shell/stopwatch.h"
#include "problem/part.h"

namespace fovea::cli {
namespace {

/// Returns the requested rows of the head as a problem.
ProblemPart part_of(const AttendInputs& inputs, const AttendRules& rules,
                    const MapRequest& request) {
  return {rules.options(),
          inputs.shape,
          {.item = request.batch,
           .head = request.head,
           .first_query = request.queries.begin,
           .queries = request.queries.size()}};
}

/// Returns the flop count of a pass over the part, without computing a context.
double flop_of(const ProblemPart& part, const AttendInputs& inputs) {
  return useful_flop(part.shape(), inputs.head_dim(), part.options());
}

}  // namespace

MapResult compute_map(const AttendInputs& inputs, const AttendRules& rules,
                      const MapRequest& request, int threads, Progress& progress) {
  const std::int64_t heads = request.heads ? inputs.shape.q_heads : 1;
  CallProgress said(progress,
                    flop_of(part_of(inputs, rules, request), inputs) * static_cast<double>(heads));
  AttentionOptions options = rules.options();
  options.execution.threads = threads;
  options.execution.progress = [&](std::int64_t done, std::int64_t total) { said(done, total); };
  MapResult result;
  const Stopwatch watch;
  try {
    static_cast<AttentionMap&>(result) =
        map_in_job(inputs.shape, inputs.for_map(request.keys.size()), request, options);
  } catch (const InvalidArgument& error) {
    throw in_words_of_options(error);
  }
  result.threads = threads_of(options.execution) * job_size();
  result.seconds = watch.seconds();
  progress.clear();
  return result;
}

MapResult compute_value_map(const RecordedAttention& attention, const MapRequest& request,
                            int threads, Progress& progress) {
  Execution execution = {.threads = threads};
  CallProgress said(progress, 0.0);
  execution.progress = [&](std::int64_t done, std::int64_t total) { said(done, total); };
  MapResult result;
  const Stopwatch watch;
  result.map = value_weighted_map(attention, value_norms(attention), request, execution);
  result.threads = threads_of(execution);
  result.seconds = watch.seconds();
  progress.clear();
  return result;
}

Tensor compute_tile(const AttendInputs& inputs, const AttendRules& rules, const MapRequest& request,
                    TileOf what, int threads, Progress& progress) {
  const ProblemPart part = part_of(inputs, rules, request);
  AttentionOptions options = part.options();
  options.execution.threads = threads;
  const WeightTile rectangle = {.queries = request.queries.size(),
                                .first_key = request.keys.begin,
                                .keys = request.keys.size()};
  const DType type = inputs.is_float64() ? DType::kFloat64 : DType::kFloat32;
  Tensor tile(type, {rectangle.queries, rectangle.keys});
  WeightInputs of = {.query = part.queries_of(inputs.query.view),
                     .key = part.keys_of(inputs.key.view)};
  try {
    if (what == TileOf::kScores) {
      attention_scores(of, rectangle, options, tile);
      return tile;
    }
    if (inputs.lse.defined()) {
      of.lse = part.numbers_of(inputs.lse);
      attention_weights(of, rectangle, options, tile);
      return tile;
    }
    Tensor lse(type, {1, 1, rectangle.queries});
    CallProgress said(progress, flop_of(part, inputs));
    AttentionOptions whole = options;
    whole.execution.progress = [&](std::int64_t done, std::int64_t total) { said(done, total); };
    AttentionOutputs outputs;
    outputs.lse = lse;
    attention_forward(of.query, of.key, no_value(of.key), whole, outputs);
    progress.clear();
    of.lse = lse;
    attention_weights(of, rectangle, options, tile);
  } catch (const InvalidArgument& error) {
    throw in_words_of_options(error);
  }
  return tile;
}

}  // namespace fovea::cli
