// SPDX-License-Identifier: Apache-2.0
//
// Memory ranges of tensors, with checks for valid extents and strides and for overlap with other
// tensors.

#pragma once

#include <cstdint>
#include <string_view>

#include "fovea/tensor.h"

namespace fovea {

/// Limit for extents and byte distances. The limit is far below 2^63, because extents and distances
/// are multiplied and added in 64 bits.
inline constexpr std::int64_t kMaxTensorBytes = std::int64_t{1} << 48;

/// The addresses of a tensor's elements, in [begin, end); begin == end if the tensor is empty. The
/// elements form runs of `run` bytes, each starting at a multiple of `period` bytes after `begin`.
/// Runs show that queries, keys and values do not overlap if they are stored side by side in the
/// rows of one matrix. If `period` is 0, there is a single run.
struct Memory {
  std::intptr_t begin;
  std::intptr_t end;
  std::int64_t run;
  std::int64_t period;
  bool row_major;  // row-major order without gaps; may be false for an empty or enormous tensor

  /// Returns whether the two may share an address. Conservative: returns false only if a shared
  /// address is impossible.
  bool overlaps(const Memory& other) const;
};

/// Returns the memory of a tensor. Throws InvalidArgument if extents or strides exceed
/// kMaxTensorBytes, or if a tensor with elements has a null pointer. `name` is the tensor's name in
/// the message.
Memory memory_of(const TensorView& tensor, std::string_view name);

/// Whether different indices address different elements. Conservative: returns true only if each
/// stride exceeds the reach of all smaller ones. The tensor must have passed memory_of.
bool elements_are_distinct(const TensorView& tensor);

}  // namespace fovea
