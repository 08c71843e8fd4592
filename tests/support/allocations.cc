// SPDX-License-Identifier: Apache-2.0
//
// Counting replacements for the allocation functions (allocations.h). The dynamic linker prefers a
// program's own definitions to those of the C library, also for calls from other libraries.

#include "support/allocations.h"

#include <cerrno>
#include <cstddef>
#include <cstdlib>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define FOVEA_TEST_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FOVEA_TEST_SANITIZER 1
#endif

#if defined(__GLIBC__) && !defined(FOVEA_TEST_SANITIZER)

namespace {
thread_local std::int64_t count = 0;
}  // namespace

extern "C" {

void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t number, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) {
  ++count;
  return __libc_malloc(bytes);
}
void* calloc(std::size_t number, std::size_t bytes) {
  ++count;
  return __libc_calloc(number, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  ++count;
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  ++count;
  return __libc_memalign(alignment, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  ++count;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  ++count;
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr && bytes > 0 ? ENOMEM : 0;
}

}  // extern "C"

namespace fovea::test {
bool counts_allocations() { return true; }
std::int64_t allocations() { return count; }
}  // namespace fovea::test

#else

namespace fovea::test {
bool counts_allocations() { return false; }
std::int64_t allocations() { return 0; }
}  // namespace fovea::test

#endif
