// SPDX-License-Identifier: Apache-2.0
//
// The checks of a call (problem.h): all of them before anything is written.

#include "engine/problem.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include <fmt/format.h>

#include "fovea/error.h"

#include "core/tensor_memory.h"

namespace fovea::engine {
namespace {

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw InvalidArgument(fmt::format(format, std::forward<Args>(args)...));
}

void check_input(const TensorView& tensor, std::string_view name) {
  validate_input(tensor, name);
  if (tensor.extent(3) > 1 && tensor.strides()[3] != 1) {
    fail("{}: expected a contiguous last dimension (stride 1), got strides {}", name,
         to_string(tensor.strides()));
  }
  memory_of(tensor, name);
}

/// Checks one output but for its place in memory, which it returns.
Memory check_output(const MutableTensorView& output, std::string_view name, const Shape& expected,
                    std::string_view what) {
  if (output.shape() != expected) {
    fail("{}: expected {} = {}, got {}", name, what, to_string(expected),
         to_string(output.shape()));
  }
  const Memory memory = memory_of(output, name);
  if (!elements_are_distinct(output)) {
    fail("{}: expected an element in memory for each index, got strides {} for shape {}", name,
         to_string(output.strides()), to_string(output.shape()));
  }
  return memory;
}

/// What float64 holds may be nothing or everything in float32, where scores are kept times log2(e).
void check_float32(const Problem& problem) {
  const ScoreOptions& score = problem.options.score;
  const auto holds = [](double number) {
    return std::isfinite(static_cast<float>(number * std::numbers::log2e_v<double>));
  };
  if (!holds(problem.scale())) {
    fail("scale: expected a number that float32 holds, got {}", problem.scale());
  }
  if (score.softcap > 0.0) {
    if (!holds(score.softcap) || static_cast<float>(score.softcap) == 0.0f) {
      fail("softcap: expected a number that float32 holds, got {}", score.softcap);
    }
    if (!holds(problem.scale() / score.softcap)) {
      fail("softcap: expected scale / softcap to be a number that float32 holds, got {} / {}",
           problem.scale(), score.softcap);
    }
  }
  for (const double sink : score.sinks) {
    if (!holds(sink) && !std::isinf(sink)) {
      fail("sinks: expected numbers that float32 holds, got {}", sink);
    }
  }
}

}  // namespace

Problem make_problem(const TensorView& query, const TensorView& key, const TensorView& value,
                     const AttentionOptions& options) {
  check_input(query, "query");
  check_input(key, "key");
  check_input(value, "value");
  const auto is_float64 = [](const TensorView& tensor) {
    return tensor.dtype() == DType::kFloat64;
  };
  if (is_float64(key) != is_float64(query) || is_float64(value) != is_float64(query)) {
    fail("dtype: expected float64 for query, key and value or for none of them, got {}, {} and {}",
         dtype_name(query.dtype()), dtype_name(key.dtype()), dtype_name(value.dtype()));
  }
  const Problem problem{query, key, value, options, problem_shape(query, key, value, options)};
  if (key.extent(3) != query.extent(3)) {
    fail("key: expected dim {} as query has, got {}", query.extent(3), key.extent(3));
  }
  validate(options, problem.shape);
  if (options.execution.threads < 0) {
    fail("threads: expected 0 (as many as OpenMP says) or more, got {}", options.execution.threads);
  }
  if (!problem.is_float64()) check_float32(problem);
  return problem;
}

void validate_outputs(const Problem& problem, const AttentionOutputs& outputs) {
  const ProblemShape& shape = problem.shape;
  const MutableTensorView& context = outputs.context;
  const MutableTensorView& lse = outputs.lse;
  Memory context_memory, lse_memory;
  if (context.defined()) {
    const DType type = context.dtype();
    if (problem.is_float64() ? type != DType::kFloat64
                             : !is_float(type) || type == DType::kFloat64) {
      fail("context: expected {} for inputs of {}, got {}",
           problem.is_float64() ? "float64" : "float32, float16 or bfloat16",
           dtype_name(problem.query.dtype()), dtype_name(type));
    }
    context_memory = check_output(context, "context",
                                  {shape.batch, shape.q_heads, shape.q_len, problem.value_dim()},
                                  "[batch, q_heads, q_len, value_dim]");
    if (context.extent(3) > 1 && context.strides()[3] != 1) {
      fail("context: expected a contiguous last dimension (stride 1), got strides {}",
           to_string(context.strides()));
    }
  }
  if (lse.defined()) {
    const DType type = problem.is_float64() ? DType::kFloat64 : DType::kFloat32;
    if (lse.dtype() != type) {
      fail("lse: expected {} for inputs of {}, got {}", dtype_name(type),
           dtype_name(problem.query.dtype()), dtype_name(lse.dtype()));
    }
    lse_memory = check_output(lse, "lse", {shape.batch, shape.q_heads, shape.q_len},
                              "[batch, q_heads, q_len]");
  }
  const auto keep_apart = [&](const TensorView& other, std::string_view other_name) {
    if (!other.defined()) return;
    const Memory taken = memory_of(other, other_name);
    for (const auto& [memory, name] :
         {std::pair{context_memory, "context"}, std::pair{lse_memory, "lse"}}) {
      if (memory.overlaps(taken)) {
        fail("{}: expected memory of its own, got some that {} uses", name, other_name);
      }
    }
  };
  keep_apart(problem.query, "query");
  keep_apart(problem.key, "key");
  keep_apart(problem.value, "value");
  keep_apart(problem.options.score.bias, "bias");
  if (lse_memory.overlaps(context_memory)) {
    fail("lse: expected memory of its own, got some that context uses");
  }
}

}  // namespace fovea::engine
