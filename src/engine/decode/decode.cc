// SPDX-License-Identifier: Apache-2.0
//
// attention_decode: validates the arguments, splits the keys into parts, computes the parts in
// parallel, and merges them.

#include "engine/decode/decode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numbers>
#include <optional>
#include <vector>

#include "fovea/attention.h"

#include "core/fail.h"
#include "engine/call/outputs.h"
#include "engine/call/parallel.h"
#include "engine/call/problem.h"
#include "engine/call/progress.h"
#include "engine/call/rows.h"
#include "engine/call/workspace.h"
#include "engine/decode/decode_lenses.h"
#include "engine/decode/decode_plan.h"
#include "engine/lenses/lenses.h"
#include "kernels/simd/target.h"
#include "kernels/simd/write_row.h"

namespace fovea {
namespace engine {
namespace {

/// Returns a row's maximum score times log2(e). The kernel's float32 product saturates at -FLT_MAX;
/// a saturated maximum was already -FLT_MAX before the product.
double scaled_maximum(const kernels::DecodePart& part, std::int64_t row) {
  const float maximum = part.maximum[row];
  const bool lowest = maximum == std::numeric_limits<float>::lowest();
  return static_cast<double>(maximum) / (lowest ? std::numbers::ln2_v<double> : 1.0);
}

/// Merges the parts of row `row` of an item in order (Dao et al. 2023, Flash-Decoding).
void merge_row(const Problem& problem, const AttentionOutputs& outputs, const DecodePlan& plan,
               std::byte* workspace, std::int64_t first_item, std::int64_t row, const Index& at) {
  constexpr double kLn2 = std::numbers::ln2_v<double>;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto part = [&](std::int64_t p) { return plan.part(workspace, first_item + p); };
  double maximum = -kInfinity;
  for (std::int64_t p = 0; p < plan.parts(); ++p) {
    // A part without a visible key has sum 0 and is skipped. A part with a NaN sum is included.
    if (part(p).sum[row] != 0.0f) maximum = std::max(maximum, scaled_maximum(part(p), row));
  }
  const auto& sinks = problem.options.score.sinks;
  const double sink = sinks.empty() ? -kInfinity : sinks[static_cast<std::size_t>(at[1])] / kLn2;
  maximum = std::max(maximum, sink);
  const bool empty = std::isinf(maximum) && maximum < 0.0;
  constexpr std::int64_t kFewParts = 16;
  kernels::WeightedRow few[kFewParts];
  std::vector<kernels::WeightedRow> many(
      plan.parts() > kFewParts ? static_cast<std::size_t>(plan.parts()) : 0);
  kernels::WeightedRow* const rows = many.empty() ? few : many.data();
  std::int64_t count = 0;
  const std::int64_t dim = plan.setup().value_dim;
  double sum = sinks.empty() ? 0.0 : std::exp2(sink - maximum);
  for (std::int64_t p = 0; p < plan.parts() && !empty; ++p) {
    const kernels::DecodePart from = part(p);
    if (from.sum[row] == 0.0f) continue;
    const double below = scaled_maximum(from, row) - maximum;
    const double factor = below == 0.0 ? 1.0 : std::exp2(below);  // avoids a slow call
    sum += factor * static_cast<double>(from.sum[row]);
    rows[count++] = {factor, from.context + row * dim};
  }
  if (outputs.lse.defined()) {
    set_value(outputs.lse, at, empty ? -kInfinity : maximum * kLn2 + std::log(sum));
  }
  if (!outputs.context.defined()) return;
  for (std::int64_t n = 0; n < count; ++n) rows[n].weight /= sum;
  const kernels::OutputRows context = rows_of(outputs.context, at[0], at[1], at[2]);
  kernels::write_sum(rows, count, dim, context.dtype, context.row(0));
}

/// Returns the number of queries of the longest sequence or batch item.
std::int64_t most_queries(const Problem& problem) {
  return DecodeSize::of(problem, false, Decoded::kAll, RowsOfHead::kAny).most_queries;
}

/// The plans for sequences with few and with more queries; none for kinds that do not occur.
using Plans = std::array<std::optional<DecodePlan>, std::size(kFewAndMore)>;

Plans plans_of(const Problem& problem, bool paged, bool context, Decoded which) {
  Plans plans;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    DecodeSize size = DecodeSize::of(problem, context, which, kFewAndMore[i]);
    if (size.most_queries == 0) continue;
    size.heads_together = paged;
    plans[i].emplace(problem, size);
  }
  return plans;
}

void decode_rows(const Problem& problem, const Cache& cache, const AttentionOutputs& outputs,
                 Decoded which, RowsOfHead rows, const DecodePlan& plan, std::byte* workspace,
                 const Execution& execution) {
  const ProblemShape& shape = problem.shape;
  const std::int64_t heads = plan.setup().most_heads * plan.setup().group;  // query heads per item
  const auto merge_head = [&](const SequenceSpan& span, std::int64_t first_item,
                              std::int64_t head) {
    for (std::int64_t q = 0; q < span.q_len; ++q) {
      merge_row(problem, outputs, plan, workspace, first_item, head % heads * span.q_len + q,
                {span.batch, head, span.query_start + q});
    }
  };
  for_each_item(execution, plan.threads(), plan.items(), [&](std::int64_t number, int thread) {
    const std::int64_t head = number / plan.parts() % plan.items_of_heads() * heads;
    const std::int64_t item_number = number / plan.parts() / plan.items_of_heads();
    const SequenceSpan span = decoded_span(problem, item_number, which, rows);
    if (span.q_len == 0) return;
    kernels::decode_item(
        plan.setup(),
        plan.item(problem, cache, item_number, head, 0, span.q_len, number % plan.parts()),
        plan.part(workspace, number), plan.scratch(workspace, thread), execution.stop);
    // If the keys are one part, this item has all that merge_row() reads.
    const std::int64_t end = plan.parts() == 1 ? std::min(head + heads, shape.q_heads) : head;
    for (std::int64_t h = head; h < end; ++h) merge_head(span, number, h);
  });
  if (plan.parts() == 1) return;
  for (std::int64_t i = 0; i < shape.items(); ++i) {
    const SequenceSpan span = decoded_span(problem, i, which, rows);
    for (std::int64_t head = 0; head < shape.q_heads; ++head) {
      merge_head(span, (i * plan.items_of_heads() + head / heads) * plan.parts(), head);
    }
  }
}

}  // namespace

void decode(const Problem& problem, const Cache& cache, const AttentionOutputs& given,
            Decoded which) {
  if (!asks_for_anything(given)) return;
  kernels::choose_target();
  AttentionOutputs outputs = given;
  Tensor lse;
  const bool watched = asks_for_lenses(given);
  if (watched && !given.lse.defined()) {
    const ProblemShape& shape = problem.shape;
    lse = Tensor(DType::kFloat32, {shape.batch, shape.q_heads, shape.q_len});
    outputs.lse = lse;
  }
  const Plans plans = plans_of(problem, cache.paged(), outputs.context.defined(), which);
  std::size_t bytes = 0;
  for (const auto& plan : plans) bytes = std::max(bytes, plan ? plan->workspace_bytes() : 0);
  const Execution& execution = problem.options.execution;
  const Workspace workspace(execution.workspace, bytes);
  const auto compute = [&](std::size_t i, const Execution& with) {
    decode_rows(problem, cache, outputs, which, kFewAndMore[i], *plans[i], workspace.data(), with);
  };
  if (plans[0] && plans[1]) {
    JoinedProgress joined(execution);
    compute(0, joined.next(plans[1]->items()));
    compute(1, joined.next(0));
  } else if (plans[0] || plans[1]) {
    compute(plans[0] ? 0 : 1, execution);
  }
  if (watched) watch_decoding(problem, cache, outputs.lse, *given.lenses);
}

std::int64_t decode_items(const Problem& problem, const AttentionOutputs& outputs, Decoded which) {
  if (!asks_for_anything(outputs)) return 0;
  kernels::choose_target();
  std::int64_t items = 0;
  for (const auto& plan : plans_of(problem, false, outputs.context.defined(), which)) {
    items += plan ? plan->items() : 0;
  }
  return items;
}

std::size_t decode_workspace_bytes(const Problem& problem, Decoded which) {
  std::size_t bytes = 0;
  for (const RowsOfHead rows : kFewAndMore) {
    const DecodePlan plan(problem, DecodeSize::of(problem, true, which, rows));
    bytes = std::max(bytes, plan.workspace_bytes());
  }
  return bytes;
}

}  // namespace engine

void attention_decode(const TensorView& query, const TensorView& key, const TensorView& value,
                      const AttentionOptions& options, const AttentionOutputs& outputs) {
  // Float64 inputs and dropout use the forward pass. Text generation does not use dropout, so
  // decoding has no kernels for it.
  if (query.dtype() == DType::kFloat64 || options.dropout.probability > 0) {
    return attention_forward(query, key, value, options, outputs);
  }
  const engine::Problem problem = engine::make_problem(query, key, value, options);
  if (engine::asks_for_lenses(outputs) &&
      engine::most_queries(problem) > engine::kMaxWatchedQueries) {
    return attention_forward(query, key, value, options, outputs);
  }
  engine::validate_outputs(problem, outputs);
  engine::decode(problem, engine::Cache(key, value), outputs, engine::Decoded::kAll);
}

std::size_t attention_decode_workspace(const TensorView& query, const TensorView& key,
                                       const TensorView& value, const AttentionOptions& options) {
  if (options.dropout.probability > 0) {
    return attention_forward_workspace(query, key, value, options);
  }
  const engine::Problem problem = engine::make_problem(query, key, value, options);
  if (problem.is_float64()) return 0;
  kernels::choose_target();
  return engine::Workspace::bytes_with_alignment(
      engine::decode_workspace_bytes(problem, engine::Decoded::kAll));
}

void attention_decode(const TensorView& query, const PagedKeyValue& cache,
                      const AttentionOptions& options, const AttentionOutputs& outputs) {
  validate(cache);
  validate_input(query, "query");
  if (query.dtype() == DType::kFloat64 || cache.key.dtype() == DType::kFloat64 ||
      cache.value.dtype() == DType::kFloat64) {
    fail_argument(
        "dtype", "expected float32, float16 or bfloat16 with a paged cache, got {}, {} and {}",
        dtype_name(query.dtype()), dtype_name(cache.key.dtype()), dtype_name(cache.value.dtype()));
  }
  if (cache.lengths.extent(0) != query.extent(0)) {
    fail_argument("lengths", "expected one per batch item ({}), got {}", query.extent(0),
                  cache.lengths.extent(0));
  }
  if (options.sequences.count() > 0) {
    fail_argument("sequences", "expected none with a paged cache, which has lengths, got {}",
                  options.sequences.count());
  }
  if (options.dropout.probability > 0) {
    fail_argument("dropout", "expected none with a paged cache, got {}",
                  options.dropout.probability);
  }
  std::vector<std::int64_t> lengths;
  for (std::int64_t item = 0; item < query.extent(0); ++item) {
    lengths.push_back(cache.lengths.at<std::int64_t>({item}));
  }
  const std::int64_t kv_len = lengths.empty() ? 0 : *std::ranges::max_element(lengths);
  AttentionOptions with_lengths = options;
  if (!lengths.empty()) with_lengths.mask = options.mask & key_lengths(lengths);
  // Run the usual checks on views with the length of the longest item and stride 0 along tokens.
  // validate() above has already checked the real blocks.
  const auto as_long = [&](const TensorView& pool) {
    return TensorView(pool.data(), pool.dtype(),
                      {query.extent(0), pool.extent(1), kv_len, pool.extent(3)},
                      {0, pool.strides()[1], 0, 1});
  };
  const TensorView key = as_long(cache.key);
  const TensorView value = as_long(cache.value);
  const engine::Problem checked = engine::make_problem(query, key, value, with_lengths);
  const std::array<Memory, 3> memory{checked.memory[0], memory_of(cache.key, "key"),
                                     memory_of(cache.value, "value")};
  const engine::Problem problem{query, cache.key, cache.value, with_lengths, memory, checked.shape};
  engine::OutputChecks checks(problem);
  checks.add_input(cache.block_table, "block_table");
  checks.add_input(cache.lengths, "lengths");
  engine::validate_outputs(problem, outputs, checks);
  engine::decode(problem, engine::Cache(cache), outputs, engine::Decoded::kAll);
}

}  // namespace fovea
