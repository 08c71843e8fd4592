// SPDX-License-Identifier: Apache-2.0
//
// Validation of backward calls (backward_problem.h).

#include "engine/backward/backward_problem.h"

#include <string_view>

#include "core/fail.h"
#include "core/tensor_memory.h"
#include "engine/call/outputs.h"

namespace fovea::engine {
namespace {

/// Validates a result of the forward pass, or the gradient with respect to such a result. If `sums`
/// is true, the requirements of lse apply: any strides, and float32, or float64 for float64 inputs.
void check_result(const Problem& problem, const TensorView& tensor, std::string_view name,
                  const Shape& expected, std::string_view expected_name, bool sums) {
  if (!tensor.defined()) {
    fail_argument(name, "expected {} = {}, got nothing", expected_name, to_string(expected));
  }
  const DType type = tensor.dtype();
  const bool is_float64 = type == DType::kFloat64;
  const bool fits = problem.is_float64() ? is_float64
                    : sums               ? type == DType::kFloat32
                                         : is_float(type) && !is_float64;
  if (!fits) {
    const char* const wanted = problem.is_float64() ? "float64"
                               : sums               ? "float32"
                                                    : "float32, float16 or bfloat16";
    fail_argument(name, "expected {} for inputs of {}, got {}", wanted,
                  dtype_name(problem.query.dtype()), dtype_name(type));
  }
  if (tensor.shape() != expected) {
    fail_argument(name, "expected {} = {}, got {}", expected_name, to_string(expected),
                  to_string(tensor.shape()));
  }
  memory_of(tensor, name);
  if (!sums && tensor.extent(3) > 1 && tensor.strides()[3] != 1) {
    fail_argument(name, "expected a contiguous last dimension (stride 1), got strides {}",
                  to_string(tensor.strides()));
  }
}

}  // namespace

const BackwardLenses& lenses_of(const AttentionGradients& gradients) {
  static const BackwardLenses kNone;
  return gradients.lenses == nullptr ? kNone : *gradients.lenses;
}

void validate_backward(const Problem& problem, const BackwardInputs& inputs,
                       const AttentionGradients& gradients) {
  const ProblemShape& shape = problem.shape;
  const ScoreOptions& score = problem.options.score;
  const Shape rows{shape.batch, shape.q_heads, shape.q_len};
  Shape contexts = rows;
  contexts.push_back(problem.value_dim());
  constexpr std::string_view kRows = "[batch, q_heads, q_len]";
  constexpr std::string_view kContexts = "[batch, q_heads, q_len, value_dim]";
  check_result(problem, inputs.context, "context", contexts, kContexts, false);
  check_result(problem, inputs.lse, "lse", rows, kRows, true);
  check_result(problem, inputs.grad_context, "grad_context", contexts, kContexts, false);
  if (inputs.grad_lse.defined()) {
    check_result(problem, inputs.grad_lse, "grad_lse", rows, kRows, true);
  }
  if (score.custom.tile != nullptr && score.custom.tile_derivative == nullptr) {
    fail_argument("custom", "expected a function with its derivative, got one without");
  }
  if (gradients.grad_bias.defined() && !score.bias.defined()) {
    fail_argument("grad_bias", "expected nothing where there is no bias, got {}",
                  to_string(gradients.grad_bias.shape()));
  }
  if (gradients.grad_relative.defined() && !score.relative) {
    fail_argument("grad_relative", "expected nothing where there is no relative table, got {}",
                  to_string(gradients.grad_relative.shape()));
  }
  if (gradients.grad_sinks.defined() && score.sinks.empty()) {
    fail_argument("grad_sinks", "expected nothing where there are no sinks, got {}",
                  to_string(gradients.grad_sinks.shape()));
  }

  OutputChecks checks(problem);
  checks.add_input(inputs.context, "context");
  checks.add_input(inputs.lse, "lse");
  checks.add_input(inputs.grad_context, "grad_context");
  checks.add_input(inputs.grad_lse, "grad_lse");
  checks.add(gradients.grad_query,
             {.name = "grad_query", .shape = problem.query.shape(), .shape_name = "query's shape"});
  checks.add(gradients.grad_key,
             {.name = "grad_key", .shape = problem.key.shape(), .shape_name = "key's shape"});
  checks.add(gradients.grad_value,
             {.name = "grad_value", .shape = problem.value.shape(), .shape_name = "value's shape"});
  if (gradients.grad_bias.defined()) {
    checks.add(gradients.grad_bias, {.name = "grad_bias",
                                     .shape = score.bias->shape(),
                                     .shape_name = "bias' shape",
                                     .contiguous_rows = false});
  }
  if (gradients.grad_relative.defined()) {
    checks.add(gradients.grad_relative, {.name = "grad_relative",
                                         .shape = score.relative->table->shape(),
                                         .shape_name = "[buckets, q_heads]",
                                         .contiguous_rows = false});
  }
  checks.add(gradients.grad_sinks, {.name = "grad_sinks",
                                    .shape = {shape.q_heads},
                                    .shape_name = "[q_heads]",
                                    .contiguous_rows = false});
  const auto check_lens = [&](const MutableTensorView& lens, std::string_view name) {
    checks.add(lens, {.name = name,
                      .shape = {shape.batch, shape.q_heads, shape.kv_len},
                      .shape_name = "[batch, q_heads, kv_len]",
                      .type = OutputType::kSums});
  };
  check_lens(lenses_of(gradients).relevance, "relevance");
  check_lens(lenses_of(gradients).magnitude, "magnitude");
}

}  // namespace fovea::engine
