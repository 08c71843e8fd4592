// SPDX-License-Identifier: Apache-2.0
//
// The memory of caches: large, streamed through at every step of decoding, and often reserved long
// before it is written.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "fovea/tensor.h"

namespace fovea {

/// The bytes of a tensor without gaps. Throws InvalidArgument beyond kMaxTensorBytes; `name` is
/// what the message calls it.
std::int64_t bytes_of(const Shape& shape, DType dtype, std::string_view name);

/// Memory whose contents are unspecified, aligned to 64 bytes, or in large pages where it is large
/// enough for one; null for 0 bytes. Takes up room in the machine only as it is written. Throws
/// std::bad_alloc.
std::shared_ptr<std::byte> allocate_pages(std::int64_t bytes);

/// Throws InvalidArgument unless keys and values can be kept in `dtype`: float32, float16 or
/// bfloat16.
void validate_cache_dtype(DType dtype);

/// Throws InvalidArgument for a number below `least`; `name` is what the message calls it.
void validate_at_least(std::int64_t number, std::int64_t least, std::string_view name);

}  // namespace fovea
