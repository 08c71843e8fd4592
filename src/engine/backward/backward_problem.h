// SPDX-License-Identifier: Apache-2.0
//
// The checks of a backward call's tensors.

#pragma once

#include "fovea/attention_backward.h"

#include "engine/call/problem.h"

namespace fovea::engine {

/// Those of a call; none where it has none.
const BackwardLenses& lenses_of(const AttentionGradients& gradients);

/// Checks what attention_backward is given beside the problem, and its gradients: shapes, types,
/// strides, memory. Throws InvalidArgument naming the argument, what was expected and what came.
void validate_backward(const Problem& problem, const BackwardInputs& inputs,
                       const AttentionGradients& gradients);

}  // namespace fovea::engine
