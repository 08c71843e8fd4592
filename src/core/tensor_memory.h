// SPDX-License-Identifier: Apache-2.0
//
// Where a tensor lies in memory: whether its extents and strides can be true at all, and what it
// shares with others.

#pragma once

#include <cstdint>
#include <string_view>

#include "fovea/tensor.h"

namespace fovea {

/// Extents and distances are multiplied and added up in 64 bits, and so must stay far from that.
inline constexpr std::int64_t kMaxTensorBytes = std::int64_t{1} << 48;

/// The addresses that a tensor touches, from `begin` to before `end`; the same for an empty one.
/// Within, they are runs of `run` bytes, each of which begins a multiple of `period` after `begin`:
/// queries, keys and values in rows of one wider matrix share no address. A period of 0: one run.
struct Memory {
  std::intptr_t begin = 0;
  std::intptr_t end = 0;
  std::int64_t run = 0;
  std::int64_t period = 0;

  /// Whether an address may be of both. Never wrongly false.
  bool overlaps(const Memory& other) const;
};

/// Throws InvalidArgument for extents and strides beyond memory, and for a null pointer where there
/// are elements; `name` is what the message calls the tensor.
Memory memory_of(const TensorView& tensor, std::string_view name);

/// Whether different indices are different elements, shown by strides that each exceed what the
/// smaller ones reach. For a tensor that memory_of accepts.
bool elements_are_distinct(const TensorView& tensor);

}  // namespace fovea
