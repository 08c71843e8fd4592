// SPDX-License-Identifier: Apache-2.0
//
// Gathers strided elements (pieces.h).

#include "files/pieces.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace fovea::files {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 18;  // a multiple of every element size

bool is_contiguous(const TensorView& tensor) {
  const Strides wanted = contiguous_strides(tensor.shape());
  for (int dim = 0; dim < tensor.rank(); ++dim) {
    if (tensor.extent(dim) > 1 && tensor.strides()[dim] != wanted[dim]) return false;
  }
  return true;
}

void copy_element(const std::byte* from, std::byte* to, std::size_t size) {
  std::memcpy(to, from, size);
  if constexpr (std::endian::native == std::endian::big) std::reverse(to, to + size);
}

}  // namespace

std::uint64_t byte_count(const TensorView& tensor) {
  return static_cast<std::uint64_t>(tensor.size()) * dtype_size(tensor.dtype());
}

void for_each_piece(const TensorView& tensor, const Sink& sink) {
  if (tensor.size() == 0) return;
  if (std::endian::native == std::endian::little && is_contiguous(tensor)) {
    sink({static_cast<const std::byte*>(tensor.data()), byte_count(tensor)});
    return;
  }
  const std::size_t size = dtype_size(tensor.dtype());
  std::vector<std::byte> buffer(kBuffer);
  std::size_t used = 0;
  // for_each_index visits one index per row: all dimensions but the last.
  Shape rows = tensor.shape();
  const int last = tensor.rank() - 1;
  const std::int64_t columns = last < 0 ? 1 : tensor.extent(last);
  const std::int64_t step = last < 0 ? 0 : tensor.strides()[last];
  if (last >= 0) rows[last] = 1;
  for_each_index(rows, [&](const Index& index) {
    const auto* from = static_cast<const std::byte*>(tensor.address(index));
    for (std::int64_t i = 0; i < columns; ++i) {
      copy_element(from + i * step * static_cast<std::int64_t>(size), buffer.data() + used, size);
      used += size;
      if (used < kBuffer) continue;
      sink(buffer);
      used = 0;
    }
  });
  if (used > 0) sink(std::span(buffer).first(used));
}

}  // namespace fovea::files
