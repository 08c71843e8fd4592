// SPDX-License-Identifier: Apache-2.0
//
// The library's threads. The calling thread works through its items itself and is joined by
// workers, as they wake up. A call ends when its items are done.

#pragma once

#include <cstdint>

namespace fovea::engine {

/// The items of one call.
class PoolItems {
 public:
  /// Processes an item. Returns false if no more items are to be started; one more on each thread
  /// may have been by then. Must not skip the item, because later ones may wait for it.
  virtual bool run(std::int64_t item, int thread) noexcept = 0;

 protected:
  ~PoolItems() = default;
};

/// Limits of one call.
struct PoolLimits {
  int threads = 1;      ///< of this call, the caller included
  int all_threads = 1;  ///< of all calls, one caller included
};

/// Calls items.run(item, thread) for each item in [0, count), with thread in [0, limits.threads):
/// the caller is thread 0, workers are the others. Items are started in order, and an item that has
/// been started is never without a thread, so that items may wait for earlier ones. Returns when
/// all items that were started are done, and never waits for a worker that has not started one.
/// A call from within an item of a call with several threads runs on its thread alone.
void run_in_pool(PoolItems& items, std::int64_t count, const PoolLimits& limits);

/// Returns the maximum number of threads for a short call, one that takes less time than waking a
/// worker: the caller and the workers that are awake. It is one more if the call soon follows
/// another short call of this thread: a worker that is woken now will be awake for the next one.
int threads_of_short_call();
/// Must be called after each short call.
void end_short_call();

/// Returns whether this thread runs an item of a call with several threads.
bool in_pool_item();

/// Keeps the library and its dependencies loaded until the process ends. Must be called before a
/// thread is started, because dlclose() would unload the thread's code.
void stay_loaded();

}  // namespace fovea::engine
