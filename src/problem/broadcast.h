// SPDX-License-Identifier: Apache-2.0
//
// Tensors that broadcast to the scores of a problem, [batch, q_heads, q_len, kv_len]: aligned from
// the right, missing leading dimensions and extents of 1 repeat.

#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "fovea/export.h"
#include "fovea/mask.h"
#include "fovea/tensor.h"

namespace fovea {

/// The distances between neighbours in [batch, q_heads, q_len, kv_len] when `tensor` is broadcast:
/// 0 along what repeats. All 0 for a tensor of more dimensions, which validate_broadcast refuses.
std::array<std::int64_t, 4> broadcast_strides(const TensorView& tensor);

/// The element that stands at `at` when `tensor` is broadcast.
double broadcast_value(const TensorView& tensor, const ScorePosition& at);

/// Throws InvalidArgument when `tensor` does not broadcast to the problem's scores; `name` is what
/// the message calls it.
FOVEA_API void validate_broadcast(const TensorView& tensor, const ProblemShape& shape,
                                  const std::string& name);

}  // namespace fovea
