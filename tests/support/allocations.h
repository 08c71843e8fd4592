// SPDX-License-Identifier: Apache-2.0
//
// Counts the calling thread's memory allocations by replacing the C library's functions
// (support/allocations.cc).

#pragma once

#include <cstdint>

namespace fovea::test {

/// Returns false under sanitizers, which replace the same functions, and with C libraries other
/// than glibc.
bool counts_allocations();

/// Returns the calling thread's number of calls of malloc, calloc, realloc, aligned_alloc and
/// posix_memalign so far, including those made by operator new.
std::int64_t allocations();

}  // namespace fovea::test
