// SPDX-License-Identifier: Apache-2.0
//
// What happens on Ctrl-C: temporary files go and the process ends with 128 + the signal's number.

#pragma once

namespace fovea::cli {

/// Ends the process quietly on SIGINT, SIGTERM and SIGHUP, except for those that the caller of the
/// program had switched off (nohup); and with a message and exit code 2 when a file that is being
/// read has become shorter, of which the system tells by SIGBUS. A closed pipe or too large a file
/// is left to the writer.
void handle_signals();

/// While it lives, the first of these signals is only noted, so that work can end by itself;
/// another ends the process as ever. One at a time.
class DelayedInterrupt {
 public:
  DelayedInterrupt();
  ~DelayedInterrupt();
  DelayedInterrupt(const DelayedInterrupt&) = delete;
  DelayedInterrupt& operator=(const DelayedInterrupt&) = delete;

  /// The number of the signal that came; 0: none.
  int signal() const;
};

}  // namespace fovea::cli
