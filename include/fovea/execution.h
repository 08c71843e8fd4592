// SPDX-License-Identifier: Apache-2.0
//
// How a call runs: threads, memory, stopping, progress. Nothing here changes a bit of a result.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>

namespace fovea {

struct Execution {
  /// At most this many threads; 0 leaves it to OpenMP (OMP_NUM_THREADS, else one per CPU). OpenMP's
  /// own limits hold either way. A forked child computes on one thread.
  int threads = 0;
  /// Memory for intermediate results, any alignment, of at least as many bytes as the operation's
  /// workspace function says. When empty, the calling thread keeps a workspace of its own, which
  /// grows to the largest need, serves its later calls without allocating, and goes with the
  /// thread. Float64 takes what it needs from the heap.
  std::span<std::byte> workspace = {};
  /// Requesting a stop ends the call within a fraction of a second with the exception Stopped.
  std::stop_token stop = {};
  /// Called with the work items done and their number, at the start and after each item, never
  /// by two threads at once but by any of them. What it throws stops the call and comes out of it.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

}  // namespace fovea
