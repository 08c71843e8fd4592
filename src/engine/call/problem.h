// SPDX-License-Identifier: Apache-2.0
//
// The tensors and options of one call, checked.

#pragma once

#include <string_view>

#include "fovea/attention.h"
#include "fovea/attention_options.h"
#include "fovea/tensor.h"

#include "problem/problem_shape.h"

namespace fovea::engine {

/// A call whose arguments fit each other. The options are the caller's, and have to outlive it.
struct Problem {
  TensorView query;
  TensorView key;
  TensorView value;
  const AttentionOptions& options;
  ProblemShape shape;

  std::int64_t head_dim() const { return query.extent(3); }
  std::int64_t value_dim() const { return value.extent(3); }
  /// All inputs are float64, or none is.
  bool is_float64() const { return query.dtype() == DType::kFloat64; }
  double scale() const { return score_scale(options.score, head_dim()); }
};

/// Throws InvalidArgument naming the argument, what was expected and what came.
Problem make_problem(const TensorView& query, const TensorView& key, const TensorView& value,
                     const AttentionOptions& options);
Problem make_problem(const TensorView& query, const TensorView& key, const TensorView& value,
                     const AttentionOptions&& options) = delete;

}  // namespace fovea::engine
