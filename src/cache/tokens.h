// SPDX-License-Identifier: Apache-2.0
//
// What is common to appending tokens to either kind of cache.

#pragma once

#include <cstdint>
#include <string_view>

#include "fovea/tensor.h"

namespace fovea {

/// Throws InvalidArgument unless `tensor` is floats of `expected`, but for the length, its second
/// to last dimension, where `expected` may be negative: then any is good. `name` and `what`, such
/// as "[batch, kv_heads, n, head_dim]", are for the message.
void validate_tokens(const TensorView& tensor, const Shape& expected, std::string_view name,
                     std::string_view what);

/// Throws InvalidArgument unless `part` is from 0 to `length`; `name` is what the message calls the
/// operation.
void validate_part(std::int64_t part, std::int64_t length, std::string_view name);

}  // namespace fovea
