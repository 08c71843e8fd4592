// SPDX-License-Identifier: Apache-2.0
//
// The elements of a tensor as bytes in row-major order, piece by piece: as they lie in memory where
// they have that order, else through a small buffer.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "fovea/tensor.h"

namespace fovea::files {

using Sink = std::function<void(std::span<const std::byte>)>;

/// Little-endian on any machine.
void for_each_piece(const TensorView& tensor, const Sink& sink);

/// Bytes of all elements.
std::uint64_t byte_count(const TensorView& tensor);

}  // namespace fovea::files
