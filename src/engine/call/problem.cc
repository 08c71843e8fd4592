// SPDX-License-Identifier: Apache-2.0
//
// Validation of a call's inputs and options (problem.h). All checks run before anything is written.

#include "engine/call/problem.h"

#include "core/fail.h"
#include "core/tensor_memory.h"
#include "problem/float32_options.h"

namespace fovea::engine {
namespace {

/// Returns the memory of a tensor.
Memory check_input(const TensorView& tensor, std::string_view name) {
  validate_input(tensor, name);
  if (tensor.extent(3) > 1 && tensor.strides()[3] != 1) {
    fail_argument(name, "expected a contiguous last dimension (stride 1), got strides {}",
                  to_string(tensor.strides()));
  }
  return memory_of(tensor, name);
}

ProblemShape shape_of(const TensorView& query, const TensorView& key, const TensorView& value,
                      const AttentionOptions& options) {
  const auto is_float64 = [](const TensorView& tensor) {
    return tensor.dtype() == DType::kFloat64;
  };
  if (is_float64(key) != is_float64(query) || is_float64(value) != is_float64(query)) {
    fail_argument(
        "dtype", "expected float64 for query, key and value or for none of them, got {}, {} and {}",
        dtype_name(query.dtype()), dtype_name(key.dtype()), dtype_name(value.dtype()));
  }
  return problem_shape(query, key, value, options);
}

}  // namespace

Problem make_problem(const TensorView& query, const TensorView& key, const TensorView& value,
                     const AttentionOptions& options) {
  const Problem problem{
      query,
      key,
      value,
      options,
      {check_input(query, "query"), check_input(key, "key"), check_input(value, "value")},
      shape_of(query, key, value, options)};
  if (key.extent(3) != query.extent(3)) {
    fail_argument("key", "expected dim {} as query has, got {}", query.extent(3), key.extent(3));
  }
  validate(options, problem.shape);
  if (options.execution.threads < 0) {
    fail_argument("threads", "expected 0 (as many as OpenMP says) or more, got {}",
                  options.execution.threads);
  }
  if (!problem.is_float64()) check_float32(options.score, problem.scale);
  return problem;
}

bool keys_and_values_exceed(const Problem& problem, double bytes) {
  const auto bytes_of = [](const TensorView& tensor) {
    double count = static_cast<double>(dtype_size(tensor.dtype()));
    for (int axis = 0; axis < 4; ++axis) count *= static_cast<double>(tensor.extent(axis));
    return count;
  };
  return bytes_of(problem.key) + bytes_of(problem.value) > bytes;
}

}  // namespace fovea::engine
