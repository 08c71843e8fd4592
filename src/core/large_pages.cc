// SPDX-License-Identifier: Apache-2.0
//
// Requests for 2 MB pages (large_pages.h).

#include "core/large_pages.h"

#include <cstdint>

#include <sys/mman.h>

namespace fovea {

void prefer_large_pages([[maybe_unused]] void* memory,
                        [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(MADV_HUGEPAGE)
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const std::size_t before = (kLargePage - address % kLargePage) % kLargePage;
  if (bytes < before + kLargePage) return;
  const std::size_t whole = (bytes - before) / kLargePage * kLargePage;
  madvise(static_cast<std::byte*>(memory) + before, whole, MADV_HUGEPAGE);
#endif
}

}  // namespace fovea
