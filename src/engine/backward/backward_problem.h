// SPDX-License-Identifier: Apache-2.0
//
// Validation of a backward call's tensors.

#pragma once

#include "fovea/attention_backward.h"

#include "engine/call/problem.h"

namespace fovea::engine {

/// Returns the lenses of a call, or empty lenses if it has none.
const BackwardLenses& lenses_of(const AttentionGradients& gradients);

/// Validates the remaining inputs of attention_backward, and its gradients: shapes, types, strides
/// and memory overlap. Throws InvalidArgument with the name of the argument and the expected and
/// actual values.
void validate_backward(const Problem& problem, const BackwardInputs& inputs,
                       const AttentionGradients& gradients);

}  // namespace fovea::engine
