// SPDX-License-Identifier: Apache-2.0
//
// Tensors that broadcast to the scores of a problem, [batch, q_heads, q_len, kv_len]: aligned from
// the right, missing leading dimensions and extents of 1 repeat.

#pragma once

#include <string>

#include "fovea/mask.h"
#include "fovea/tensor.h"

namespace fovea {

/// The element that stands at `at` when `tensor` is broadcast.
double broadcast_value(const TensorView& tensor, const ScorePosition& at);

/// Throws InvalidArgument when `tensor` does not broadcast to the problem's scores; `name` is what
/// the message calls it.
void validate_broadcast(const TensorView& tensor, const ProblemShape& shape,
                        const std::string& name);

}  // namespace fovea
