// SPDX-License-Identifier: Apache-2.0
//
// Ctrl-C in a long call. Python's SIGINT handler only sets a flag, which the interpreter checks
// between bytecode instructions, and thus not during a call into C++. A dedicated waiting
// thread therefore also turns the signal into a stop request.

#pragma once

#include <stop_token>

namespace fovea::python {

/// Returns whether this is the thread that runs Python's signal handlers. Requires the GIL.
bool in_main_thread();

/// Returns whether SIGINT raises KeyboardInterrupt, because Python's own handler is installed.
/// Requires the GIL.
bool raises_keyboard_interrupt();

/// Requests a stop on SIGINT during its lifetime; the previously installed handler, usually
/// Python's, is called as well. Does nothing if the signal would end the process or is ignored. At
/// most one instance at a time, in the main thread.
///
/// *Alternatives considered:* computing on another thread while this one polls for signals: that
/// thread would create its own workspace and OpenMP team in every call. Polling in
/// Execution::progress: with long rows, items are seconds apart.
class InterruptWatch {
 public:
  explicit InterruptWatch(std::stop_source& source);
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;
  ~InterruptWatch();

 private:
  bool watching_ = false;
};

}  // namespace fovea::python
