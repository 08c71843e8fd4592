// SPDX-License-Identifier: Apache-2.0
//
// Work items on threads. How many there are never decides what an item is.

#pragma once

#include <cstdint>
#include <functional>

#include "fovea/execution.h"

namespace fovea::engine {

/// How many threads `items` work items may use: what Execution and OpenMP allow, no more than items,
/// and one in a forked child, where OpenMP's threads are gone and libgomp would wait for them.
int thread_count(const Execution& execution, std::int64_t items);

/// Calls work(item, thread) for every item from 0 to items, `thread` from 0 to threads. Items are
/// handed out in order. Throws Stopped when execution.stop asks, and passes on what work or
/// execution.progress throw; items not begun by then are left out.
void for_each_item(const Execution& execution, int threads, std::int64_t items,
                   const std::function<void(std::int64_t item, int thread)>& work);

}  // namespace fovea::engine
