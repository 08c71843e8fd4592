// SPDX-License-Identifier: Apache-2.0
//
// Validation of a backward call's tensors.

#pragma once

#include "fovea/attention_backward.h"
#include "fovea/export.h"

#include "engine/call/problem.h"

namespace fovea::engine {

/// Returns the lenses of a call, or empty lenses if it has none.
const BackwardLenses& lenses_of(const AttentionGradients& gradients);

/// Validates the remaining inputs of attention_backward, and its gradients: shapes, types, strides
/// and memory overlap. Throws InvalidArgument with the name of the argument and the expected and
/// actual values.
FOVEA_API void validate_backward(const Problem& problem, const BackwardInputs& inputs,
                                 const AttentionGradients& gradients);

/// As attention_backward(), for a part of the keys that the lse, the context and their gradients
/// belong to; not for float64. (backward.cc)
void backward_of_some_keys(const BackwardInputs& inputs, const AttentionOptions& options,
                           const AttentionGradients& gradients);

}  // namespace fovea::engine
