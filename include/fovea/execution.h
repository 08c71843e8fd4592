// SPDX-License-Identifier: Apache-2.0
//
// Execution settings of a call: threads, workspace, stop token, progress. Results are bit-identical
// for all settings.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>

namespace fovea {

/// Execution settings of a call.
struct Execution {
  /// The maximum number of threads, the calling one included; 0: OpenMP's default (OMP_NUM_THREADS,
  /// or one per CPU). OpenMP's own limits apply in either case. The others are the library's, which
  /// join as they wake up; the call does not wait for them. One thread is used in a forked child
  /// process, and within OpenMP's parallel regions unless these may be nested.
  int threads = 0;
  /// Memory for intermediate results, of any alignment, with at least the size that the operation's
  /// workspace function returns. If empty, the call uses a thread-local workspace of the calling
  /// thread. That workspace grows to the largest size needed, is reused by later calls without
  /// allocation, and is freed when the thread ends. Float64 calls allocate from the heap instead.
  /// Must overlap no input and no output.
  std::span<std::byte> workspace = {};
  /// A stop request ends the call within a fraction of a second with the exception Stopped.
  std::stop_token stop = {};
  /// Called with the number of finished work items and their total, at the start and after each
  /// item. It may be called from any thread, but never concurrently. If it throws an exception, the
  /// attention call stops and rethrows the exception.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

}  // namespace fovea
