// SPDX-License-Identifier: Apache-2.0
//
// Memory of the KV caches: large, read in full at every decoding step, and often allocated long
// before it is written.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "fovea/tensor.h"

namespace fovea {

/// Returns the size of a contiguous tensor in bytes. Throws InvalidArgument if the size exceeds
/// kMaxTensorBytes; `name` is the tensor's name in the message.
std::int64_t bytes_of(const Shape& shape, DType dtype, std::string_view name);

/// Returns uninitialised memory that is aligned to 64 bytes and, if large enough, in large pages.
/// Returns null for 0 bytes. Physical memory is only used for pages that are written. Throws
/// std::bad_alloc.
std::shared_ptr<std::byte> allocate_pages(std::int64_t bytes);

/// Throws InvalidArgument unless `dtype` is one that caches can store: float32, float16 or
/// bfloat16.
void validate_cache_dtype(DType dtype);

/// Throws InvalidArgument if `number` is less than `least`; the message calls the number `name`.
void validate_at_least(std::int64_t number, std::int64_t least, std::string_view name);

}  // namespace fovea
