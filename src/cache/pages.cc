// SPDX-License-Identifier: Apache-2.0
//
// Memory of the KV caches (pages.h).

#include "cache/pages.h"

#include <algorithm>
#include <cstdint>
#include <new>

#include <sys/mman.h>

#include "core/fail.h"
#include "core/large_pages.h"
#include "core/tensor_memory.h"

namespace fovea {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr std::size_t kWorthLargePages = kLargePage / 4;

std::shared_ptr<std::byte> map_pages(std::size_t bytes) {
  const std::size_t rounded = (bytes + kLargePage - 1) / kLargePage * kLargePage;
  // One more page, so that the memory can start at a multiple of the page size. No memory is
  // reserved: the capacity is only a limit, may exceed the machine's memory, and is rarely reached.
  const std::size_t mapped = rounded + kLargePage;
  void* const all = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) throw std::bad_alloc();
  const auto begin = reinterpret_cast<std::uintptr_t>(all);
  const std::uintptr_t aligned = (begin + kLargePage - 1) / kLargePage * kLargePage;
  auto* const memory = static_cast<std::byte*>(all) + (aligned - begin);
  prefer_large_pages(memory, rounded);
  return {memory, [all, mapped](std::byte*) { munmap(all, mapped); }};
}

}  // namespace

std::int64_t bytes_of(const Shape& shape, DType dtype, std::string_view name) {
  auto bytes = static_cast<std::int64_t>(dtype_size(dtype));
  bool overflows = false;
  bool empty = false;
  for (const std::int64_t extent : shape) {
    empty = empty || extent == 0;
    // The product of the nonzero extents must not overflow, even if the tensor is empty.
    overflows = overflows || extent > kMaxTensorBytes / bytes;
    if (!overflows) bytes *= std::max<std::int64_t>(extent, 1);
  }
  if (overflows) {
    fail_argument(name, "expected at most {} bytes, got {} of {}", kMaxTensorBytes,
                  to_string(shape), dtype_name(dtype));
  }
  return empty ? 0 : bytes;
}

std::shared_ptr<std::byte> allocate_pages(std::int64_t bytes) {
  if (bytes == 0) return nullptr;
  const auto size = static_cast<std::size_t>(bytes);
  if (size >= kWorthLargePages) return map_pages(size);
  auto* const memory = static_cast<std::byte*>(::operator new[](size, kAlignment));
  return {memory, [](std::byte* p) { ::operator delete[](p, kAlignment); }};
}

void validate_cache_dtype(DType dtype) {
  if (!is_float(dtype) || dtype == DType::kFloat64) {
    fail_argument("dtype", "expected float32, float16 or bfloat16, got {}", dtype_name(dtype));
  }
}

void validate_at_least(std::int64_t number, std::int64_t least, std::string_view name) {
  if (number < least) {
    fail_argument(name, "expected {} or more, got {}", least, number);
  }
}

}  // namespace fovea
