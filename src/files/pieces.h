// SPDX-License-Identifier: Apache-2.0
//
// The elements of a tensor as a sequence of byte blocks, in C order. Contiguous tensors are passed
// directly, others through a small buffer.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea::files {

using Sink = std::function<void(std::span<const std::byte>)>;

/// Calls `sink` for each block. Elements are little-endian on every machine.
FOVEA_API void for_each_piece(const TensorView& tensor, const Sink& sink);

/// Returns the total size of the elements in bytes.
std::uint64_t byte_count(const TensorView& tensor);

}  // namespace fovea::files
