// SPDX-License-Identifier: Apache-2.0
//
// Validated tensors and options of one call.

#pragma once

#include <array>

#include "fovea/attention.h"
#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/tensor.h"

#include "core/tensor_memory.h"
#include "problem/problem_shape.h"

namespace fovea::engine {

/// The validated inputs of a call. `options` refers to the caller's object, which must outlive the
/// problem.
struct Problem {
  TensorView query;
  TensorView key;
  TensorView value;
  const AttentionOptions& options;
  std::array<Memory, 3> memory;  // of query, key and value, for OutputChecks only
  ProblemShape shape;
  double scale = score_scale(options.score, query.extent(3));

  std::int64_t head_dim() const { return query.extent(3); }
  std::int64_t value_dim() const { return value.extent(3); }
  /// Whether the inputs are float64. Either all inputs are float64 or none of them.
  bool is_float64() const { return query.dtype() == DType::kFloat64; }
  /// Returns the same problem with other options, which must outlive the result.
  Problem with_options(const AttentionOptions& other) const {
    return {query, key, value, other, memory, shape};
  }
};

/// Validates the inputs and options of a call. Throws InvalidArgument with the name of the argument
/// and the expected and actual values.
FOVEA_API Problem make_problem(const TensorView& query, const TensorView& key,
                               const TensorView& value, const AttentionOptions& options);
Problem make_problem(const TensorView& query, const TensorView& key, const TensorView& value,
                     const AttentionOptions&& options) = delete;

/// Returns whether the keys and values have more than this number of bytes.
bool keys_and_values_exceed(const Problem& problem, double bytes);

}  // namespace fovea::engine
