// SPDX-License-Identifier: Apache-2.0
//
// Tensors in memory (tensor_memory.h).

#include "core/tensor_memory.h"

#include <array>
#include <cstdlib>

#include <fmt/format.h>

#include "fovea/error.h"

namespace fovea {

Memory memory_of(const TensorView& tensor, std::string_view name) {
  const std::int64_t elements = element_count(tensor.shape());
  for (const std::int64_t extent : tensor.shape()) {
    if (extent > kMostBytes) {
      throw InvalidArgument(fmt::format("{}: expected extents up to {}, got {}", name, kMostBytes,
                                        to_string(tensor.shape())));
    }
  }
  if (elements == 0) return {};
  const auto size = static_cast<std::int64_t>(dtype_size(tensor.dtype()));
  std::int64_t before = 0;
  std::int64_t after = size;
  for (int dim = 0; dim < tensor.rank(); ++dim) {
    std::int64_t reach = 0;
    const bool overflows =
        __builtin_mul_overflow(tensor.extent(dim) - 1, tensor.strides()[dim], &reach) ||
        __builtin_mul_overflow(reach, size, &reach) || reach > kMostBytes || reach < -kMostBytes;
    if (overflows) {
      throw InvalidArgument(
          fmt::format("{}: expected strides that stay within memory, got {} for shape {}", name,
                      to_string(tensor.strides()), to_string(tensor.shape())));
    }
    (reach < 0 ? before : after) += reach;
  }
  if (tensor.data() == nullptr) {
    throw InvalidArgument(fmt::format("{}: expected data for shape {}, got a null pointer", name,
                                      to_string(tensor.shape())));
  }
  const auto at = reinterpret_cast<std::intptr_t>(tensor.data());
  return {at + before, at + after};
}

bool elements_are_distinct(const TensorView& tensor) {
  if (element_count(tensor.shape()) == 0) return true;
  std::int64_t reach = 0;
  std::array<bool, kMaxRank> done{};
  for (int round = 0; round < tensor.rank(); ++round) {
    int smallest = -1;
    for (int dim = 0; dim < tensor.rank(); ++dim) {
      if (done[static_cast<std::size_t>(dim)] || tensor.extent(dim) == 1) continue;
      const auto stride = [&](int of) { return std::abs(tensor.strides()[of]); };
      if (smallest < 0 || stride(dim) < stride(smallest)) smallest = dim;
    }
    if (smallest < 0) break;
    const std::int64_t stride = std::abs(tensor.strides()[smallest]);
    if (stride <= reach) return false;
    reach += (tensor.extent(smallest) - 1) * stride;
    done[static_cast<std::size_t>(smallest)] = true;
  }
  return true;
}

}  // namespace fovea
