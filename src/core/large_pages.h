// SPDX-License-Identifier: Apache-2.0
//
// Pages of 2 MB for memory that is streamed through. From pages of 4 KB decoding reaches only 65 to
// 85 % of the memory's bandwidth: each of them needs an entry in the tables of addresses, and
// prefetchers stop at its end.

#pragma once

#include <cstddef>

namespace fovea {

inline constexpr std::size_t kLargePage = std::size_t{2} << 20;

/// Asks the system to use large pages for those that lie as a whole within this memory, which was
/// not written yet. Only ever a hint.
void prefer_large_pages(void* memory, std::size_t bytes) noexcept;

}  // namespace fovea
