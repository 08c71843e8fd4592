// SPDX-License-Identifier: Apache-2.0
//
// Handling of Ctrl-C and similar signals: temporary files are removed, and the exit code is 128 +
// the signal's number.

#pragma once

namespace fovea::cli {

/// Installs signal handlers. SIGINT, SIGTERM and SIGHUP end the process without a message, unless
/// they were ignored when the program started (nohup). SIGBUS, which the system sends if a mapped
/// file becomes shorter, ends the process with a message and exit code 2. SIGPIPE and SIGXFSZ are
/// ignored, so that a closed pipe or a file over the size limit is reported as a write error.
void handle_signals();

/// Delays SIGINT, SIGTERM and SIGHUP during its lifetime: the first one is only recorded, so that
/// the computation can stop cleanly; a second one ends the process. At most one instance may exist.
class DelayedInterrupt {
 public:
  DelayedInterrupt();
  ~DelayedInterrupt();
  DelayedInterrupt(const DelayedInterrupt&) = delete;
  DelayedInterrupt& operator=(const DelayedInterrupt&) = delete;

  /// Returns the number of the recorded signal, or 0 if there is none.
  int signal() const;
};

}  // namespace fovea::cli
