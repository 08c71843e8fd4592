// SPDX-License-Identifier: Apache-2.0
//
// attention_backward (fovea/attention_backward.h): validates the arguments, plans the work items,
// computes them in parallel, and adds up partial sums.

#include "kernels/backward/backward.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <new>
#include <vector>

#include "fovea/attention_backward.h"
#include "fovea/reference.h"

#include "core/fail.h"
#include "engine/backward/backward_plan.h"
#include "engine/backward/backward_problem.h"
#include "engine/call/contiguous.h"
#include "engine/call/parallel.h"
#include "engine/call/problem.h"
#include "engine/call/rows.h"
#include "engine/call/workspace.h"
#include "kernels/backward/turn.h"
#include "kernels/simd/target.h"
#include "kernels/simd/write_row.h"
#include "problem/broadcast.h"
#include "problem/pair_score.h"
#include "reference/gradients.h"

namespace fovea {
namespace engine {
namespace {

/// The arguments, plan and workspace of one call.
struct Call {
  const Problem& problem;
  const BackwardInputs& inputs;
  const AttentionGradients& gradients;
  const BackwardPlan& plan;
  const BackwardPlan::Memory& memory;
};

/// Calls `act` with the offset of every element of a tensor that broadcasts to the scores.
template <class Act>
void for_each_offset(const TensorView& tensor, const Act& act) {
  const auto strides = broadcast_strides(tensor);
  std::array<std::int64_t, 4> extents{1, 1, 1, 1};
  for (int dim = 0; dim < tensor.rank(); ++dim) {
    extents[static_cast<std::size_t>(dim + 4 - tensor.rank())] = tensor.extent(dim);
  }
  for (std::int64_t b = 0; b < extents[0]; ++b) {
    for (std::int64_t h = 0; h < extents[1]; ++h) {
      for (std::int64_t q = 0; q < extents[2]; ++q) {
        const std::int64_t row = b * strides[0] + h * strides[1] + q * strides[2];
        for (std::int64_t k = 0; k < extents[3]; ++k) act(row + k * strides[3]);
      }
    }
  }
}

/// Returns the tensor in which bias gradients are accumulated: grad_bias itself, or a contiguous
/// float32 buffer in the workspace.
MutableTensorView bias_sums(const Call& call) {
  const MutableTensorView& bias = call.gradients.grad_bias;
  if (!bias.defined() || call.memory.bias_sums == nullptr) return bias;
  return {call.memory.bias_sums, DType::kFloat32, bias.shape()};
}

kernels::BackwardHead kernel_head(const Call& call, const SequenceSpan& span, std::int64_t sequence,
                                  std::int64_t head) {
  const Problem& problem = call.problem;
  const AttentionOptions& options = problem.options;
  const std::int64_t kv_head = head / call.plan.group();
  const std::int64_t before = call.plan.rows_before(span, head);
  kernels::BackwardHead result;
  result.forward.origin = {.batch = sequence,
                           .head = head,
                           .offset = query_offset(options, problem.shape, sequence),
                           .query_start = span.query_start,
                           .key_start = span.key_start};
  result.forward.kv_len = span.kv_len;
  result.forward.query = rows_of(problem.query, span.batch, head, span.query_start);
  result.forward.key = rows_of(problem.key, span.batch, kv_head, span.key_start);
  result.forward.value = rows_of(problem.value, span.batch, kv_head, span.key_start);
  result.forward.bias = bias_rows(options.score.bias, span, head);
  result.q_len = span.q_len;
  result.grad_context = rows_of(call.inputs.grad_context, span.batch, head, span.query_start);
  result.log2_sum = call.memory.log2_sum + before;
  result.delta = call.memory.delta + before;
  result.bounds = call.memory.bounds + call.plan.bounds_before(span, sequence, head);
  if (call.memory.query_sums != nullptr) {
    result.grad_query = call.memory.query_sums + before * problem.head_dim();
    result.grad_query_stride = problem.head_dim();
  } else {
    const auto rows = rows_of(call.gradients.grad_query, span.batch, head, span.query_start);
    result.grad_query = static_cast<float*>(rows.data);
    result.grad_query_stride = rows.stride;
  }
  if (const MutableTensorView sums = bias_sums(call); sums.defined()) {
    result.grad_bias = static_cast<float*>(sums.data());
    result.grad_bias_place = bias_rows(sums, span, head);
  }
  const auto of_keys = [&](const MutableTensorView& lens) {
    return static_cast<float*>(rows_of(lens, span.batch, head, span.key_start).data);
  };
  result.relevance = of_keys(lenses_of(call.gradients).relevance);
  result.magnitude = of_keys(lenses_of(call.gradients).magnitude);
  return result;
}

double dot(const TensorView& a, const Index& row_a, const TensorView& b, const Index& row_b) {
  Index at_a = row_a, at_b = row_b;
  double sum = 0.0;
  for (at_a[3] = at_b[3] = 0; at_a[3] < a.extent(3); ++at_a[3], ++at_b[3]) {
    sum += a.value(at_a) * b.value(at_b);
  }
  return sum;
}

/// Returns whether no key is visible to a query, so that its context has no effect.
bool sees_nothing(const Call& call, const SequenceSpan& span, const kernels::ForwardHead& head,
                  std::int64_t query) {
  const Problem& problem = call.problem;
  const AttentionOptions& options = problem.options;
  const PairScore score(options.score, problem.shape, problem.head_dim());
  const std::int64_t q_head = head.origin.head, kv_head = q_head / call.plan.group();
  const KeyRange range = options.mask.key_range(head.place(query, 0), head.kv_len);
  for (std::int64_t key = range.begin; key < range.end; ++key) {
    const ScorePosition at = head.place(query, key);
    if (!options.mask.visible(at)) continue;
    // Only a custom function may hide a pair because of its product.
    const double product =
        options.score.custom.one == nullptr
            ? 0.0
            : dot(problem.query, {span.batch, q_head, span.query_start + query, 0}, problem.key,
                  {span.batch, kv_head, span.key_start + key, 0});
    if (score(product, at) != -std::numeric_limits<double>::infinity()) return false;
  }
  return true;
}

void prepare(const Call& call, std::int64_t number) {
  const RowItem item = call.plan.row_item(number);
  if (call.memory.sink_sums != nullptr) call.memory.sink_sums[number] = 0.0;
  if (item.begin == item.end) return;
  const SequenceSpan span = sequence_span(call.problem.options, call.problem.shape, item.sequence);
  const auto of = [&](const TensorView& tensor) {
    return rows_of(tensor, span.batch, item.head, span.query_start);
  };
  kernels::BackwardRows rows;
  rows.head = kernel_head(call, span, item.sequence, item.head);
  rows.context = of(call.inputs.context);
  rows.lse = of(call.inputs.lse);
  rows.grad_lse = of(call.inputs.grad_lse);
  rows.first_query = item.begin;
  rows.last_query = item.end;
  rows.log2_sum = call.memory.log2_sum + call.plan.rows_before(span, item.head);
  rows.delta = call.memory.delta + call.plan.rows_before(span, item.head);
  rows.bounds = call.memory.bounds + call.plan.bounds_before(span, item.sequence, item.head);
  kernels::prepare_rows(call.plan.setup(), rows);
  if (call.memory.sink_sums == nullptr) return;
  // A sink is an additional score that has a weight but no value: ds = p (0 - delta).
  const double sink = call.problem.options.score.sinks[static_cast<std::size_t>(item.head)];
  if (std::isinf(sink)) return;  // it has no weight, and its gradient is 0
  double sum = 0.0;
  for (std::int64_t q = item.begin; q < item.end; ++q) {
    const float lse = *rows.lse.row_as<float>(q);
    const double of_lse =
        rows.grad_lse.data == nullptr ? 0.0 : static_cast<double>(*rows.grad_lse.row_as<float>(q));
    double weight = std::exp(sink - static_cast<double>(lse));
    if (lse == static_cast<float>(sink)) weight = 1.0;
    double delta = static_cast<double>(rows.delta[q]);
    // The lse of a fully masked row is the sink, rounded. Whatever its context and the gradient of
    // its context are, even NaN, delta is that of a context of 0.
    const double rounding = 1e-6 * std::max(1.0, std::abs(sink));
    const bool may_see_nothing = std::abs(sink - static_cast<double>(lse)) <= rounding;
    if (may_see_nothing && !(delta == -of_lse) && sees_nothing(call, span, rows.head.forward, q)) {
      delta = -of_lse;
    }
    sum -= weight * delta;
  }
  call.memory.sink_sums[number] = sum;
}

/// Returns the first rows that an item reads. Returns no rows if the item begins after the last key
/// of its packed sequence.
kernels::BackwardInputRows input_rows(const Call& call, std::int64_t number) {
  const BackwardPlan& plan = call.plan;
  const KeyItem at = plan.item(number);
  const SequenceSpan span = sequence_span(call.problem.options, call.problem.shape, at.sequence);
  if (at.first_key >= span.kv_len) return {};
  const std::int64_t together = plan.setup().queries_together;
  // Groups of queries are processed from the last one on.
  const std::int64_t first = std::max<std::int64_t>(span.q_len - 1, 0) / together * together;
  const auto rows = [&](const TensorView& tensor, std::int64_t head, std::int64_t row) {
    return rows_of(tensor, span.batch, head, row);
  };
  const std::int64_t key = span.key_start + at.first_key, query = span.query_start + first;
  const std::int64_t q_head = at.kv_head * plan.group();
  return {.key = rows(call.problem.key, at.kv_head, key),
          .value = rows(call.problem.value, at.kv_head, key),
          .query = rows(call.problem.query, q_head, query),
          .grad_context = rows(call.inputs.grad_context, q_head, query),
          .keys = std::min(span.kv_len - at.first_key, plan.setup().forward.block_keys),
          .queries = span.q_len - first};
}

void run_item(const Call& call, std::int64_t number, int thread) {
  const Problem& problem = call.problem;
  const BackwardPlan& plan = call.plan;
  const KeyItem at = plan.item(number);
  const SequenceSpan span = sequence_span(problem.options, problem.shape, at.sequence);
  float* const buckets = call.memory.bucket_sums + number * plan.group() * plan.setup().buckets;
  const auto head = [&](std::int64_t i) {
    kernels::BackwardHead result =
        kernel_head(call, span, at.sequence, at.kv_head * plan.group() + i);
    result.grad_relative = buckets + i * plan.setup().buckets;
    return result;
  };
  kernels::BackwardItem item;
  item.first_key = at.first_key;
  item.group = plan.group();
  item.head = [](const void* of, std::int64_t i) {
    return (*static_cast<const decltype(head)*>(of))(i);
  };
  item.heads_of = &head;
  item.progress = call.memory.progress + at.chain;
  item.turn = number - at.chain;
  item.bias_progress = call.memory.bias_progress;
  item.bias_turn = number;
  if (at.first_key >= span.kv_len) {  // beyond the end of a shorter packed sequence
    const kernels::Turn past(item.progress, item.turn),
        bias_past(item.bias_progress, item.bias_turn);
    std::fill_n(buckets, plan.group() * plan.setup().buckets, 0.0f);
    return;
  }
  const std::int64_t first = span.key_start + at.first_key;
  item.grad_key = rows_of(call.gradients.grad_key, span.batch, at.kv_head, first);
  item.grad_value = rows_of(call.gradients.grad_value, span.batch, at.kv_head, first);
  const std::int64_t next = number + plan.threads();
  if (plan.setup().forward.prefetches && next < plan.items()) item.next = input_rows(call, next);
  kernels::backward_item(plan.setup(), item, plan.scratch_of(call.memory, thread),
                         problem.options.execution.stop);
}

/// Zeroes the gradients of keys and values if there are no query heads. Work items write nothing in
/// this case, because they have no panels.
void clear_unread(const Call& call) {
  if (call.problem.shape.q_heads > 0) return;
  for (const MutableTensorView* to : {&call.gradients.grad_key, &call.gradients.grad_value}) {
    if (!to->defined()) continue;
    for_each_index(to->shape(), [&](const Index& at) { set_value(*to, at, 0.0); });
  }
}

/// Converts accumulated query gradients to the type of grad_query.
void write_queries(const Call& call, std::int64_t number) {
  const RowItem item = call.plan.row_item(number);
  const SequenceSpan span = sequence_span(call.problem.options, call.problem.shape, item.sequence);
  const auto rows = rows_of(call.gradients.grad_query, span.batch, item.head, span.query_start);
  if (rows.data == nullptr) return;
  const std::int64_t dim = call.problem.head_dim();
  const float* from = call.memory.query_sums + call.plan.rows_before(span, item.head) * dim;
  for (std::int64_t q = item.begin; q < item.end; ++q) {
    kernels::write_row(from + q * dim, dim, rows.dtype, rows.row(q));
  }
}

void write_bias(const Call& call) {
  const MutableTensorView& bias = call.gradients.grad_bias;
  if (call.memory.bias_sums == nullptr) return;
  const float* from = call.memory.bias_sums;  // contiguous, in iteration order
  for_each_offset(bias, [&](std::int64_t offset) {
    auto* const to = static_cast<std::byte*>(bias.data()) +
                     offset * static_cast<std::int64_t>(dtype_size(bias.dtype()));
    kernels::write_row(from++, 1, bias.dtype(), to);
  });
}

/// Adds up the bucket gradients of all items, in item order.
void write_relative(const Call& call) {
  const MutableTensorView& table = call.gradients.grad_relative;
  if (!table.defined()) return;
  const std::int64_t group = call.plan.group();
  for (std::int64_t head = 0; head < table.extent(1); ++head) {
    for (std::int64_t bucket = 0; bucket < table.extent(0); ++bucket) {
      double sum = 0.0;
      for (std::int64_t i = 0; i < call.plan.items(); ++i) {
        if (call.plan.item(i).kv_head != head / group) continue;
        const std::int64_t row = i * group + head % group;
        sum += static_cast<double>(call.memory.bucket_sums[row * table.extent(0) + bucket]);
      }
      set_value(table, {bucket, head}, sum);
    }
  }
}

void write_sinks(const Call& call) {
  const MutableTensorView& sinks = call.gradients.grad_sinks;
  if (!sinks.defined()) return;
  for (std::int64_t head = 0; head < sinks.extent(0); ++head) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < call.plan.row_items(); ++i) {
      if (call.plan.row_item(i).head == head) sum += call.memory.sink_sums[i];
    }
    set_value(sinks, {head}, sum);
  }
}

void backward_fused(const Problem& problem, const BackwardInputs& inputs,
                    const AttentionGradients& gradients) {
  kernels::choose_target();
  const BackwardPlan plan(problem, inputs, gradients);
  const Execution& execution = problem.options.execution;
  const Workspace workspace(execution.workspace, plan.lay_out(nullptr).bytes);
  const BackwardPlan::Memory memory = plan.lay_out(workspace.data());
  const Call call{problem, inputs, gradients, plan, memory};
  for (std::int64_t i = 0; i < plan.items(); ++i) {
    new (memory.progress + i) std::atomic<std::int64_t>(0);
    if (memory.bias_progress != nullptr)
      new (memory.bias_progress + i) std::atomic<std::int64_t>(0);
  }
  if (const MutableTensorView sums = bias_sums(call); sums.defined()) {
    for_each_offset(sums, [&](std::int64_t at) { static_cast<float*>(sums.data())[at] = 0.0f; });
  }
  Execution quiet = execution;  // progress counts only blocks of keys
  quiet.progress = {};
  for_each_item(quiet, plan.threads(), plan.row_items(),
                [&](std::int64_t number, int) { prepare(call, number); });
  for_each_item(execution, plan.threads(), plan.items(),
                [&](std::int64_t number, int thread) { run_item(call, number, thread); });
  if (memory.query_sums != nullptr) {
    for_each_item(quiet, plan.threads(), plan.row_items(),
                  [&](std::int64_t number, int) { write_queries(call, number); });
  }
  clear_unread(call);
  write_bias(call);
  write_relative(call);
  write_sinks(call);
}

/// Computes float64 gradients with the reference implementation. Heads or batch items that share
/// gradient elements are processed in order by the same work item.
void backward_float64(const Problem& problem, const BackwardInputs& inputs,
                      const AttentionGradients& gradients) {
  const ProblemShape& shape = problem.shape;
  const AttentionOptions& options = problem.options;
  // Strided tensors are copied once here. The reference would copy them at every call.
  const Contiguous query(inputs.query), key(inputs.key), value(inputs.value);
  const Contiguous grad_context(inputs.grad_context), grad_lse(inputs.grad_lse);
  const reference::Inputs in{query.view(), key.view(), value.view()};
  const reference::OutputGradients outputs{.context = grad_context.view(), .lse = grad_lse.view()};
  reference::Gradients sums = reference::zero_gradients(in, options);
  const bool one_bias =
      options.score.bias.defined() && broadcast_strides(options.score.bias)[1] == 0;
  const bool one_batch = options.score.bias.defined() || options.score.relative.has_value() ||
                         !options.score.sinks.empty();
  const std::int64_t heads_together = one_bias ? shape.kv_heads : 1;
  const std::int64_t batches_together = one_batch ? shape.batch : 1;
  const std::int64_t head_items = heads_together == 0 ? 0 : shape.kv_heads / heads_together;
  const std::int64_t items =
      batches_together == 0 ? 0 : shape.batch / batches_together * head_items;
  const std::int64_t group = shape.kv_heads == 0 ? 1 : shape.q_heads / shape.kv_heads;
  const std::int64_t row_cost = shape.kv_len * (problem.head_dim() + problem.value_dim());
  const std::int64_t rows_together =
      std::clamp<std::int64_t>((1 << 25) / std::max<std::int64_t>(row_cost, 1), 1, 1024);
  const Execution& execution = options.execution;
  for_each_item(execution, thread_count(execution, items), items, [&](std::int64_t item, int) {
    const std::int64_t batch = item / head_items * batches_together;
    const std::int64_t head = item % head_items * heads_together;
    for (std::int64_t b = batch; b < batch + batches_together; ++b) {
      for (std::int64_t h = head * group; h < (head + heads_together) * group; ++h) {
        // Fewer rows at a time if rows are long, because stop requests are checked in between.
        for (std::int64_t q = 0; q < shape.q_len; q += rows_together) {
          if (execution.stop.stop_requested()) return;
          std::vector<reference::Row> rows;
          for (std::int64_t i = q; i < std::min(q + rows_together, shape.q_len); ++i) {
            rows.push_back({b, h, i});
          }
          reference::add_row_gradients(in, outputs, options, rows, {}, sums);
        }
      }
    }
  });
  const auto write = [](const Tensor& sum, const MutableTensorView& to) {
    if (!to.defined()) return;
    for_each_index(to.shape(), [&](const Index& at) { set_value(to, at, sum.value(at)); });
  };
  write(sums.query, gradients.grad_query);
  write(sums.key, gradients.grad_key);
  write(sums.value, gradients.grad_value);
  write(sums.bias, gradients.grad_bias);
  write(sums.relative, gradients.grad_relative);
  write(sums.sinks, gradients.grad_sinks);
  write(sums.relevance, lenses_of(gradients).relevance);
  write(sums.magnitude, lenses_of(gradients).magnitude);
}

#ifndef NDEBUG
/// Throws InvalidArgument if the last row of lse does not match this problem.
void check_lse(const Problem& problem, const TensorView& lse) {
  const ProblemShape& shape = problem.shape;
  if (lse.size() == 0) return;
  const reference::Row row{shape.batch - 1, shape.q_heads - 1, shape.q_len - 1};
  const double expected = reference::attention_rows({problem.query, problem.key, problem.value},
                                                    problem.options, {&row, 1})
                              .lse.value({0});
  const double found = lse.value({row.batch, row.head, row.query});
  if (std::abs(found - expected) > 0.05 * (1.0 + std::abs(expected))) {
    fail_argument("lse", "expected that of the same problem, {} in its last row, got {}", expected,
                  found);
  }
}
#endif

}  // namespace

void backward_of_some_keys(const BackwardInputs& inputs, const AttentionOptions& options,
                           const AttentionGradients& gradients) {
  const Problem problem = make_problem(inputs.query, inputs.key, inputs.value, options);
  validate_backward(problem, inputs, gradients);
  backward_fused(problem, inputs, gradients);
}

}  // namespace engine

void attention_backward(const BackwardInputs& inputs, const AttentionOptions& options,
                        const AttentionGradients& gradients) {
  const engine::Problem problem =
      engine::make_problem(inputs.query, inputs.key, inputs.value, options);
  engine::validate_backward(problem, inputs, gradients);
#ifndef NDEBUG
  engine::check_lse(problem, inputs.lse);
#endif
  if (problem.is_float64()) {
    engine::backward_float64(problem, inputs, gradients);
  } else {
    engine::backward_fused(problem, inputs, gradients);
  }
}

std::size_t attention_backward_workspace(const BackwardInputs& inputs,
                                         const AttentionOptions& options,
                                         const AttentionGradients& gradients) {
  const engine::Problem problem =
      engine::make_problem(inputs.query, inputs.key, inputs.value, options);
  engine::validate_backward(problem, inputs, gradients);
  if (problem.is_float64()) return 0;
  kernels::choose_target();
  return engine::Workspace::bytes_with_alignment(
      engine::BackwardPlan(problem, inputs, gradients).lay_out(nullptr).bytes);
}

}  // namespace fovea
