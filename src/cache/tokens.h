// SPDX-License-Identifier: Apache-2.0
//
// Argument checks that the contiguous and the paged cache share.

#pragma once

#include <cstdint>
#include <string_view>

#include "fovea/tensor.h"

namespace fovea {

/// Throws InvalidArgument unless `tensor` has a floating-point type and shape `expected`. If the
/// second-to-last extent of `expected` (the length) is negative, any length is accepted. `name` and
/// `what` (for example "[batch, kv_heads, n, head_dim]") appear in the message.
void validate_tokens(const TensorView& tensor, const Shape& expected, std::string_view name,
                     std::string_view what);

/// Throws InvalidArgument unless 0 <= part <= length; `name` is the operation's name in the
/// message.
void validate_part(std::int64_t part, std::int64_t length, std::string_view name);

}  // namespace fovea
