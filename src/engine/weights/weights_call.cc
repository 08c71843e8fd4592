// SPDX-License-Identifier: Apache-2.0
//
// Common code of the calls that recompute weights (weights_call.h).

#include "engine/weights/weights_call.h"

#include "core/fail.h"
#include "engine/call/rows.h"
#include "kernels/simd/target.h"

namespace fovea::engine {
/// Passes the keys in place of the values, which are not read.
Problem weights_problem(const WeightInputs& inputs, const AttentionOptions& options) {
  if (!inputs.key.defined()) fail_argument("key", "expected a tensor, got nothing");
  Problem problem = make_problem(inputs.query, inputs.key, inputs.key, options);
  if (problem.shape.sequences > 0) {
    fail_argument("sequences", "expected none for recomputed weights, got {}",
                  problem.shape.sequences);
  }
  if (options.dropout.probability > 0) {
    fail_argument("dropout", "expected none for recomputed weights, got {}",
                  options.dropout.probability);
  }
  return problem;
}

void check_lse(const Problem& problem, const TensorView& lse) {
  const ProblemShape& shape = problem.shape;
  const Shape expected{shape.batch, shape.q_heads, shape.q_len};
  if (!lse.defined() || lse.shape() != expected) {
    fail_argument("lse", "expected [batch, q_heads, q_len] = {}, got {}", to_string(expected),
                  lse.defined() ? to_string(lse.shape()) : "nothing");
  }
  const DType type = problem.is_float64() ? DType::kFloat64 : DType::kFloat32;
  if (lse.dtype() != type) {
    fail_argument("lse", "expected {} for inputs of {}, got {}", dtype_name(type),
                  dtype_name(problem.query.dtype()), dtype_name(lse.dtype()));
  }
}

void check_index(std::string_view name, std::int64_t index, std::string_view most_name,
                 std::int64_t most) {
  if (index >= 0 && index < most) return;
  fail_argument(name, "expected 0 or more and less than {} = {}, got {}", most_name, most, index);
}

WeightsCall::WeightsCall(const WeightInputs& inputs, const Problem& problem)
    : inputs_(inputs), problem_(problem) {
  kernels::choose_target();
  setup_.options = &problem.options;
  setup_.types = {problem.query.dtype(), problem.key.dtype(), problem.key.dtype()};
  setup_.q_heads = problem.shape.q_heads;
  setup_.head_dim = problem.head_dim();
  setup_.block_keys = kWeightBlockKeys;
  setup_.most_keys = kWeightBlockKeys;
  setup_.most_panels = 1;
  setup_.scale = problem.scale;
  scratch_bytes_ = kernels::weights_scratch_bytes(setup_);
}

kernels::WeightsItem WeightsCall::item(std::int64_t batch, std::int64_t head) const {
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
    // Scores do not depend on the lse: subtract 0 instead.
    static constexpr float kNothing = 0.0f;
    item.lse = &kNothing;
  }
  return item;
}

void WeightsCall::run_item(const kernels::WeightsItem& item, std::byte* scratch) const {
  kernels::weights_item(setup_, item, scratch, problem_.options.execution.stop);
}

}  // namespace fovea::engine
