// SPDX-License-Identifier: Apache-2.0
//
// The weights of one query (fovea/weights.h), computed by the decoding kernels, which read keys in
// memory order.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "fovea/reference.h"
#include "fovea/weights.h"

#include "engine/call/contiguous.h"
#include "engine/call/outputs.h"
#include "engine/call/parallel.h"
#include "engine/call/workspace.h"
#include "engine/decode/decode_plan.h"
#include "engine/weights/weights_call.h"
#include "kernels/simd/target.h"

namespace fovea {
namespace engine {
namespace {

/// A query of one head or of all heads, and the output location of its weights.
struct RowOfHeads {
  std::int64_t batch = 0, query = 0;
  std::int64_t first_head = 0, heads = 0;
  void* weights = nullptr;
  std::int64_t stride = 0;  // from one head to the next, in elements

  template <class T>
  T* weights_of(std::int64_t number) const {
    return static_cast<T*>(weights) + number * stride;
  }
};

RowOfHeads check_row(const Problem& problem, const WeightRow& row,
                     const MutableTensorView& weights) {
  const ProblemShape& shape = problem.shape;
  check_index("row.batch", row.batch, "batch", shape.batch);
  check_index("row.query", row.query, "q_len", shape.q_len);
  if (row.head) check_index("row.head", *row.head, "q_heads", shape.q_heads);
  OutputChecks checks(problem);
  if (row.head) {
    checks.add(weights, {.name = "weights",
                         .shape = {shape.kv_len},
                         .shape_name = "[kv_len]",
                         .type = OutputType::kSums});
  } else {
    checks.add(weights, {.name = "weights",
                         .shape = {shape.q_heads, shape.kv_len},
                         .shape_name = "[q_heads, kv_len]",
                         .type = OutputType::kSums});
  }
  RowOfHeads found{.batch = row.batch, .query = row.query, .heads = shape.q_heads};
  if (row.head) {
    found.first_head = *row.head;
    found.heads = 1;
  }
  if (weights.defined()) {
    found.weights = weights.data();
    found.stride = row.head ? 0 : weights.strides()[0];
  }
  return found;
}

void find(const TensorView& lse, const Problem& problem, const RowOfHeads& row) {
  kernels::choose_target();
  const ProblemShape& shape = problem.shape;
  const std::int64_t group = std::min(row.heads, shape.q_heads / shape.kv_heads);
  const DecodePlan plan(problem, {.kv_heads = row.heads / group,
                                  .group = group,
                                  .most_queries = 1,
                                  .most_keys = shape.kv_len});
  std::vector<float> log2_sums;
  for (std::int64_t head = row.first_head; head < row.first_head + row.heads; ++head) {
    log2_sums.push_back(log2_sum(lse, {row.batch, head, row.query}));
  }
  const Cache cache(problem.key, problem.value);
  const Execution& execution = problem.options.execution;
  const Workspace workspace({}, plan.workspace_bytes());
  for_each_item(execution, plan.threads(), plan.items(), [&](std::int64_t number, int thread) {
    const std::int64_t first = number / plan.parts() * group;
    const kernels::DecodeItem item = plan.item(problem, cache, row.batch, row.first_head + first,
                                               row.query, 1, number % plan.parts());
    kernels::decode_weights_item(plan.setup(), item,
                                 {.log2_sum = log2_sums.data() + first,
                                  .weights = row.weights_of<float>(first) + item.key_begin,
                                  .stride = row.stride},
                                 plan.scratch(workspace.data(), thread), execution.stop);
  });
}

void find_float64(const Problem& problem, const RowOfHeads& row) {
  const Contiguous query(problem.query), key(problem.key);
  const reference::Inputs all{query.view(), key.view(), key.view()};
  const Execution& execution = problem.options.execution;
  for_each_item(execution, thread_count(execution, row.heads), row.heads,
                [&](std::int64_t number, int) {
                  const reference::Row one{row.batch, row.first_head + number, row.query};
                  const reference::Rows found =
                      reference::attention_rows(all, problem.options, std::span(&one, 1));
                  std::ranges::copy(found.weights.span<double>(), row.weights_of<double>(number));
                });
}

}  // namespace
}  // namespace engine

void attention_row(const WeightInputs& inputs, const WeightRow& row,
                   const AttentionOptions& options, const MutableTensorView& weights) {
  const engine::Problem problem = engine::weights_problem(inputs, options);
  engine::check_lse(problem, inputs.lse);
  const engine::RowOfHeads heads = engine::check_row(problem, row, weights);
  if (weights.size() == 0) return;
  if (problem.is_float64()) {
    engine::find_float64(problem, heads);
  } else {
    engine::find(inputs.lse, problem, heads);
  }
}

}  // namespace fovea
