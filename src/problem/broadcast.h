// SPDX-License-Identifier: Apache-2.0
//
// Tensors that broadcast to a problem's scores, [batch, q_heads, q_len, kv_len]. Dimensions are
// aligned from the right; missing leading dimensions and extents of 1 repeat.

#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "fovea/export.h"
#include "fovea/mask.h"
#include "fovea/tensor.h"

namespace fovea {

/// Returns the strides of `tensor` when broadcast to [batch, q_heads, q_len, kv_len], with 0 for
/// repeated dimensions. All strides are 0 for a tensor of more than four dimensions, which
/// validate_broadcast() rejects.
std::array<std::int64_t, 4> broadcast_strides(const TensorView& tensor);

/// Returns the element of the broadcast tensor at position `at`.
FOVEA_API double broadcast_value(const TensorView& tensor, const ScorePosition& at);

/// Throws InvalidArgument if `tensor` does not broadcast to the problem's scores. `name` is the
/// tensor's name in the message.
FOVEA_API void validate_broadcast(const TensorView& tensor, const ProblemShape& shape,
                                  const std::string& name);

}  // namespace fovea
