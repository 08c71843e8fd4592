// SPDX-License-Identifier: Apache-2.0
//
// Ctrl-C in a long call. Python's own handler of SIGINT only takes a note, which is looked at
// between instructions of Python, of which a call in C++ has none. So the signal is also turned
// into a request to stop, by a thread that does nothing but wait for it.

#pragma once

#include <stop_token>

namespace fovea::python {

/// Whether this is the thread that Python's handlers of signals run in. With the GIL.
bool in_main_thread();

/// Requests a stop when SIGINT comes, as long as it lives; Python's handler, or whoever's it is, is
/// called as well. Does nothing where the signal ends the process or is ignored. One at a time, in
/// the main thread.
///
/// *Weighed:* the computation on another thread, with this one looking for signals now and then: it
/// would have a workspace and a team of OpenMP's threads of its own, made anew each time. Asking in
/// Execution::progress: on long rows seconds lie between two items.
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
