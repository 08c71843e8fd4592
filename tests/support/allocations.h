// SPDX-License-Identifier: Apache-2.0
//
// How often this thread has asked for memory, counted in place of the C library's own functions
// (support/allocations.cc).

#pragma once

#include <cstdint>

namespace fovea::test {

/// False under sanitizers, which take those functions for themselves, and on other C libraries.
bool counts_allocations();

/// Calls of malloc, calloc, realloc, aligned_alloc and posix_memalign of this thread so far, and so
/// of operator new.
std::int64_t allocations();

}  // namespace fovea::test
