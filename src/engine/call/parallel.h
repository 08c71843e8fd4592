// SPDX-License-Identifier: Apache-2.0
//
// Work items on threads. How many there are never decides a sum.

#pragma once

#include <cstdint>

#include "fovea/execution.h"
#include "fovea/export.h"

namespace fovea::engine {

/// What is to be done with an item: a reference to any callable that outlives the call. Unlike
/// std::function it never allocates.
class Work {
 public:
  template <class Callable>
  Work(const Callable& callable)  // NOLINT: implicit on purpose
      : callable_(&callable), call_([](const void* of, std::int64_t item, int thread) {
          (*static_cast<const Callable*>(of))(item, thread);
        }) {}
  void operator()(std::int64_t item, int thread) const { call_(callable_, item, thread); }

 private:
  const void* callable_;
  void (*call_)(const void*, std::int64_t, int);
};

/// How many threads `items` work items may use: what Execution and OpenMP allow, no more than
/// items, and one in a forked child, where OpenMP's threads are gone and libgomp would wait for
/// them.
FOVEA_API int thread_count(const Execution& execution, std::int64_t items);

/// Calls work(item, thread) for every item from 0 to items, `thread` from 0 to threads. Items are
/// handed out in order. Throws Stopped when execution.stop asks, and passes on what work or
/// execution.progress throw; items not begun by then are left out.
FOVEA_API void for_each_item(const Execution& execution, int threads, std::int64_t items,
                             const Work& work);

}  // namespace fovea::engine
