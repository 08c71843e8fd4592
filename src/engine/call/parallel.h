// SPDX-License-Identifier: Apache-2.0
//
// Runs work items in parallel. The thread count never affects rounding.

#pragma once

#include <cstdint>

#include "fovea/execution.h"
#include "fovea/export.h"

namespace fovea::engine {

/// A reference to a callable that processes one item. The callable must outlive the call. Unlike
/// std::function, this type never allocates.
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

/// Returns the number of threads for `items` work items: as many as Execution and OpenMP allow, but
/// at most one per item. Returns 1 in a forked child, where other threads no longer exist.
FOVEA_API int thread_count(const Execution& execution, std::int64_t items);

/// The threads of a call. A short call takes less time than waking a thread; only threads that are
/// awake help it, and a thread is woken only in a series of such calls (pool.h).
struct Threads {
  int count;
  bool for_short_call;

  Threads(int all, bool is_short = false)  // NOLINT: implicit on purpose
      : count(all), for_short_call(is_short) {}
};

/// Calls work(item, thread) for every item in [0, items), with thread in [0, threads.count). Items
/// are started in order, and those that have started are done on return. A call from within an item
/// of a call with several threads uses only its thread, as does one from within OpenMP's parallel
/// regions, if OpenMP does not nest them. Throws Stopped after a stop request through
/// execution.stop, and rethrows exceptions of `work` and execution.progress. Items that have not
/// started by then are skipped.
FOVEA_API void for_each_item(const Execution& execution, Threads threads, std::int64_t items,
                             const Work& work);

/// While such an object exists, parallel calls of its thread run on OpenMP's threads instead of
/// those of pool.h, if OpenMP's are awake. For calls between other code's parallel regions:
/// OpenMP's threads spin for milliseconds after each, and would compete with further threads.
/// Objects may be nested.
class FOVEA_API OpenMpThreads {
 public:
  OpenMpThreads();
  ~OpenMpThreads();
  OpenMpThreads(const OpenMpThreads&) = delete;
  OpenMpThreads& operator=(const OpenMpThreads&) = delete;
};

}  // namespace fovea::engine
