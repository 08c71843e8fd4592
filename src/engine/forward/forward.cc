// SPDX-License-Identifier: Apache-2.0
//
// attention_forward (fovea/attention.h): validates the arguments, plans the work items, and
// computes them in parallel.

#include "kernels/forward/forward.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "fovea/attention.h"
#include "fovea/error.h"
#include "fovea/reference.h"

#include "engine/call/contiguous.h"
#include "engine/call/heads_together.h"
#include "engine/call/outputs.h"
#include "engine/call/parallel.h"
#include "engine/call/problem.h"
#include "engine/call/progress.h"
#include "engine/call/rows.h"
#include "engine/call/workspace.h"
#include "engine/decode/decode.h"
#include "engine/decode/decode_plan.h"
#include "engine/forward/plan.h"
#include "engine/lenses/lenses.h"
#include "kernels/simd/target.h"
#include "reference/lenses.h"

namespace fovea {
namespace engine {
namespace {

/// Returns the distance between the heads of a tensor in elements.
template <class View>
std::int64_t head_stride(const View& tensor) {
  return tensor.defined() ? tensor.strides()[1] : 0;
}

kernels::ForwardItem kernel_item(const Problem& problem, const AttentionOutputs& outputs,
                                 const WorkItem& item) {
  const ProblemShape& shape = problem.shape;
  const AttentionOptions& options = problem.options;
  const SequenceSpan span = sequence_span(options, shape, item.sequence);

  return {.head = {.origin = {.batch = item.sequence,
                              .head = item.head,
                              .offset = query_offset(options, shape, item.sequence),
                              .query_start = span.query_start,
                              .key_start = span.key_start},
                   .kv_len = span.kv_len,
                   .query = rows_of(problem.query, span.batch, item.head, span.query_start),
                   .key = rows_of(problem.key, span.batch, item.kv_head, span.key_start),
                   .value = rows_of(problem.value, span.batch, item.kv_head, span.key_start),
                   .context = rows_of(outputs.context, span.batch, item.head, span.query_start),
                   .lse = rows_of(outputs.lse, span.batch, item.head, span.query_start),
                   .bias = bias_rows(options.score.bias, span, item.head),
                   .heads = item.heads,
                   .q_len = span.q_len,
                   .query_head_stride = head_stride(problem.query),
                   .context_head_stride = head_stride(outputs.context),
                   .lse_head_stride = head_stride(outputs.lse)},
          .q_begin = item.q_begin,
          .q_end = item.q_end,
          .in_place = item.in_place};
}

void forward_fused(const Problem& problem, bool decoded, const AttentionOutputs& outputs) {
  kernels::choose_target();
  const Lenses& wanted = lenses_of(outputs);
  const kernels::LensSetup lenses = lens_setup(problem, wanted);
  const ForwardPlan plan(problem, decoded, outputs.context.defined(), lenses);
  const Execution& execution = problem.options.execution;
  const Workspace workspace(execution.workspace, plan.workspace_bytes());
  plan.prepare(workspace.data());
  std::optional<Maps> maps;
  if (lenses.any()) maps.emplace(problem, wanted.map, lenses);
  for_each_item(execution, plan.threads(), plan.items(), [&](std::int64_t number, int thread) {
    const auto item = [&](std::int64_t i) {
      return kernel_item(problem, outputs, plan.item(workspace.data(), i));
    };
    kernels::ForwardItem current = item(number);
    const auto compute = [&](const kernels::ForwardItem* next) {
      kernels::forward_item(plan.setup(), current, next, plan.scratch_of(workspace.data(), thread),
                            execution.stop);
    };
    const auto compute_and_prefetch = [&] {
      const bool is_last = number + plan.threads() >= plan.items();
      if (is_last || !plan.setup().prefetches) return compute(nullptr);
      const kernels::ForwardItem next = item(number + plan.threads());
      compute(&next);
    };
    if (!maps) return compute_and_prefetch();
    const ScorePosition& origin = current.head.origin;
    const SequenceSpan span = sequence_span(problem.options, problem.shape, origin.batch);
    kernels::HeadLenses seen = head_lenses(wanted, span, origin.head);
    maps->place(span.batch, origin.head, seen);
    current.head.lenses = &seen;
    compute_and_prefetch();
  });
  if (maps) {
    maps->finish();
  } else {
    finish_maps(problem, wanted.map);
  }
}

/// Computes the sequences that are not decoded.
void forward_in_tiles(const Problem& problem, const AttentionOutputs& outputs) {
  const kernels::LensSetup lenses = lens_setup(problem, lenses_of(outputs));
  if (!lenses.any()) return forward_fused(problem, false, outputs);
  const kernels::ForwardSizes sizes = forward_sizes(problem);
  // Where the pass with lenses is another one, lenses have a pass of their own, so that they do not
  // change the context.
  bool apart = forward_sizes(problem, lenses).block_keys != sizes.block_keys;
  for (std::int64_t s = 0; s < problem.shape.items(); ++s) {
    const SequenceSpan span = sequence_span(problem.options, problem.shape, s);
    apart = apart || (!has_few_queries(problem, span) &&
                      parts_of_heads(problem, span, sizes.in_place_vector) <
                          heads_of_a_key_head(problem.shape));
  }
  apart = apart && (outputs.context.defined() || outputs.lse.defined());
  if (!apart) return forward_fused(problem, false, outputs);

  JoinedProgress joined(problem.options.execution);
  AttentionOptions options = problem.options;
  const Problem part = problem.with_options(options);
  options.execution = joined.next(ForwardPlan(problem, false, false, lenses).items());
  forward_fused(part, false, {.context = outputs.context, .lse = outputs.lse});
  options.execution = joined.next(0);
  forward_fused(part, false, {.lenses = outputs.lenses});
}

/// Returns the largest workspace of all passes that a call may consist of.
std::size_t workspace_bytes(const Problem& problem, const Lenses& lenses) {
  kernels::choose_target();
  // Work items are largest with a single thread.
  AttentionOptions on_one_thread = problem.options;
  on_one_thread.execution.threads = 1;
  const Problem alone = problem.with_options(on_one_thread);
  const kernels::LensSetup setup = lens_setup(problem, lenses);
  std::size_t bytes = decode_workspace_bytes(problem, Decoded::kFaster);
  const Passes passes = Passes::of(problem);
  for (const Problem* const planned : {&problem, &alone}) {
    for (const bool decoded : {false, true}) {
      if (!(decoded ? passes.decode : passes.tiles)) continue;
      for (const kernels::LensSetup& seen : {setup, kernels::LensSetup{}}) {
        // Without a context, the tile unit packs more keys at a time.
        for (const bool context : {false, true}) {
          if (context && decoded) continue;  // contexts are decoded by another pass
          const ForwardPlan plan(*planned, decoded, context, seen);
          bytes = std::max(bytes, plan.workspace_bytes());
        }
      }
    }
  }
  return bytes;
}

/// Computes some sequences in tiles and others by decoding, or decodes with lenses.
void forward_in_passes(const Problem& problem, const Passes& passes,
                       const AttentionOutputs& outputs) {
  const AttentionOutputs decoded{.context = outputs.context, .lse = outputs.lse};
  const bool decodes = passes.decode && asks_for_anything(decoded);
  const bool watches = passes.decode && asks_for_lenses(outputs);
  const std::int64_t decoding = decodes ? decode_items(problem, decoded, Decoded::kFaster) : 0;
  std::int64_t watching = 0;
  if (watches) {
    watching = ForwardPlan(problem, true, false, lens_setup(problem, lenses_of(outputs))).items();
  }
  JoinedProgress joined(problem.options.execution);
  AttentionOptions options = problem.options;
  const Problem part = problem.with_options(options);
  if (passes.tiles) {
    options.execution = joined.next(decoding + watching);
    forward_in_tiles(part, outputs);
  }
  if (decodes) {
    options.execution = joined.next(watching);
    decode(part, Cache(problem.key, problem.value), decoded, Decoded::kFaster);
  }
  if (watches) {
    // The context does not depend on lenses, so it is decoded with lenses too.
    options.execution = joined.next(0);
    forward_fused(part, true, {.lenses = outputs.lenses});
  }
}

/// Computes float64 attention with the reference implementation, with rows in parallel.
void forward_float64(const Problem& problem, const AttentionOutputs& outputs) {
  const ProblemShape& shape = problem.shape;
  // Strided tensors are copied once here. The reference would copy them at every call.
  const Contiguous query(problem.query), key(problem.key), value(problem.value);
  const reference::Inputs inputs{query.view(), key.view(), value.view()};
  // Fewer rows at a time if rows are long.
  const std::int64_t row_cost = shape.kv_len * (problem.head_dim() + problem.value_dim());
  const std::int64_t rows_per_item =
      std::clamp<std::int64_t>((1 << 22) / std::max<std::int64_t>(row_cost, 1), 1, 16);
  // With a map, an item computes one row of cells.
  const PooledMap& map = lenses_of(outputs).map;
  const CellDivision division =
      map.cells.defined()
          ? divide_rows(map, shape.q_len)
          : CellDivision(shape.q_len, (shape.q_len + rows_per_item - 1) / rows_per_item, 0);
  const CellDivision columns =
      map.cells.defined() ? divide_columns(map, shape.kv_len) : CellDivision();
  const std::int64_t parts = division.cells();
  const std::int64_t items = shape.batch * shape.q_heads * parts;
  const Execution& execution = problem.options.execution;
  const int threads = thread_count(execution, items);
  for_each_item(execution, threads, items, [&](std::int64_t item, int) {
    const std::int64_t batch = item / (shape.q_heads * parts);
    const std::int64_t head = item / parts % shape.q_heads;
    const std::int64_t part_end = division.begin(item % parts + 1);
    reference::MapRow map_row(columns, map.pool);
    for (std::int64_t begin = division.begin(item % parts), end = 0; begin < part_end;
         begin = end) {
      if (execution.stop.stop_requested()) return;
      end = std::min(begin + rows_per_item, part_end);
      std::vector<reference::Row> rows;
      for (std::int64_t q = begin; q < end; ++q) rows.push_back({batch, head, q});
      const reference::Rows result = reference::attention_rows(inputs, problem.options, rows);
      for (std::int64_t r = 0; r < end - begin; ++r) {
        const std::int64_t q = begin + r;
        if (outputs.lse.defined()) {
          outputs.lse.at<double>({batch, head, q}) = result.lse.at<double>({r});
        }
        for (std::int64_t c = 0; outputs.context.defined() && c < problem.value_dim(); ++c) {
          outputs.context.at<double>({batch, head, q, c}) = result.context.at<double>({r, c});
        }
        reference::write_lenses(lenses_of(outputs), {batch, head, q}, result, r);
        map_row.add(result.weights.span<double>().subspan(
            static_cast<std::size_t>(r * shape.kv_len), static_cast<std::size_t>(shape.kv_len)));
      }
    }
    for (std::size_t c = 0; c < map_row.cells().size(); ++c) {
      const auto column = static_cast<std::int64_t>(c);
      map.cells.at<double>({batch, head, item % parts, column}) = map_row.cells()[c];
    }
  });
  finish_maps(problem, map);
}

}  // namespace
}  // namespace engine

void attention_forward(const TensorView& query, const TensorView& key, const TensorView& value,
                       const AttentionOptions& options, const AttentionOutputs& outputs) {
  const engine::Problem problem = engine::make_problem(query, key, value, options);
  engine::validate_outputs(problem, outputs);
  if (!engine::asks_for_anything(outputs)) return;
  if (problem.is_float64()) return engine::forward_float64(problem, outputs);
  const engine::Passes passes = engine::Passes::of(problem);
  const bool watched = engine::asks_for_lenses(outputs);
  if (const auto& given = options.execution.workspace;
      !given.empty() && (watched || passes.tiles == passes.decode)) {
    // Before the first of several passes writes its outputs.
    const engine::Workspace fits(given,
                                 engine::workspace_bytes(problem, engine::lenses_of(outputs)));
  }
  if (passes.decode && (passes.tiles || watched)) {
    engine::forward_in_passes(problem, passes, outputs);
  } else if (passes.decode) {
    engine::decode(problem, engine::Cache(key, value), outputs, engine::Decoded::kAll);
  } else {
    engine::forward_in_tiles(problem, outputs);
  }
}

Tensor attention(const TensorView& query, const TensorView& key, const TensorView& value,
                 const AttentionOptions& options) {
  // With any other rank, the context has no defined shape, and this call throws InvalidArgument.
  if (query.rank() != 4 || value.rank() != 4) attention_forward(query, key, value, options, {});
  Tensor context(query.dtype(),
                 {query.extent(0), query.extent(1), query.extent(2), value.extent(3)});
  attention_forward(query, key, value, options, {.context = context});
  return context;
}

std::size_t attention_forward_workspace(const TensorView& query, const TensorView& key,
                                        const TensorView& value, const AttentionOptions& options,
                                        const Lenses& lenses) {
  const engine::Problem problem = engine::make_problem(query, key, value, options);
  engine::OutputChecks checks(problem);
  engine::validate_lenses(problem, lenses, checks);
  if (problem.is_float64()) return 0;
  return engine::Workspace::bytes_with_alignment(engine::workspace_bytes(problem, lenses));
}

}  // namespace fovea
