// SPDX-License-Identifier: Apache-2.0
//
// An attention problem for the reference, with checked shapes and options.

#pragma once

#include <cstdint>
#include <string>

#include "fovea/attention_options.h"
#include "fovea/reference.h"
#include "fovea/tensor.h"

#include "problem/problem_shape.h"

namespace fovea::reference {

/// Holds references to the arguments of make_problem(), which must outlive it.
struct Problem {
  const Inputs& in;
  const AttentionOptions& options;
  const ReferenceOptions& how;
  ProblemShape shape;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t hidden_dim = 0;  // 0 unless the score is additive

  double scale() const { return score_scale(options.score, head_dim); }
  bool has_dropout() const { return options.dropout.probability > 0; }
};

/// Checks all arguments and returns the problem. Throws InvalidArgument.
Problem make_problem(const Inputs& in, const AttentionOptions& options,
                     const ReferenceOptions& how);

/// Throws InvalidArgument with the message unless the condition holds.
void require(bool condition, const std::string& message);

/// Throws InvalidArgument unless the tensor is defined and has this shape.
void require_shape(const TensorView& tensor, const char* name, const Shape& expected);

}  // namespace fovea::reference
