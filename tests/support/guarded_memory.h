// SPDX-License-Identifier: Apache-2.0
//
// Buffers between two inaccessible pages: an access beyond either end crashes the test.

#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include <sys/mman.h>
#include <unistd.h>

#include "fovea/tensor.h"

#include "support/storage.h"

namespace fovea::test {

/// The guard page that the data is adjacent to.
enum class Side : std::uint8_t { kBefore, kAfter };

class GuardedMemory {
 public:
  GuardedMemory(std::size_t bytes, Side side) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t room = (bytes + page - 1) / page * page;
    mapped_ = room + 2 * page;
    void* const all = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(all);
    if (room > 0 && mprotect(base_ + page, room, PROT_READ | PROT_WRITE) != 0) {
      munmap(all, mapped_);
      throw std::bad_alloc();
    }
    data_ = base_ + page + (side == Side::kAfter ? room - bytes : 0);
  }
  ~GuardedMemory() { munmap(base_, mapped_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  std::byte* data() const { return data_; }

 private:
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t mapped_ = 0;
};

/// A copy of a tensor whose rows, along the last dimension, have `gap` unused elements between
/// them, with none after the last row.
class GuardedTensor {
 public:
  GuardedTensor(const TensorView& source, Side side, std::int64_t gap = 0)
      : dtype_(source.dtype()),
        shape_(source.shape()),
        strides_(strides_of(source.shape(), gap)),
        memory_(bytes_of(source, gap), side) {
    for_each_index(shape_, [&](const Index& at) { copy_element(source, at, view(), at); });
  }

  MutableTensorView view() const { return {memory_.data(), dtype_, shape_, strides_}; }

 private:
  static Strides strides_of(const Shape& shape, std::int64_t gap) {
    Shape wide = shape;
    wide[shape.rank() - 1] += gap;
    return contiguous_strides(wide);
  }
  static std::size_t bytes_of(const TensorView& source, std::int64_t gap) {
    if (source.size() == 0) return 0;
    Shape wide = source.shape();
    wide[wide.rank() - 1] += gap;
    return static_cast<std::size_t>(element_count(wide) - gap) * dtype_size(source.dtype());
  }

  DType dtype_;
  Shape shape_;
  Strides strides_;
  GuardedMemory memory_;
};

}  // namespace fovea::test
