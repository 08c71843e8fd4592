// SPDX-License-Identifier: Apache-2.0
//
// What happens on Ctrl-C: the temporary file goes and the process ends with 128 + the signal's
// number. One temporary file at a time is all that this program ever has.

#pragma once

#include <csignal>
#include <string>

namespace fovea::cli {

/// Ends the process quietly on SIGINT, SIGTERM and SIGHUP, except for those that the caller of the
/// program had switched off (nohup). A closed pipe or too large a file is left to the writer.
void handle_signals();

/// While one lives, the signals that end the process wait.
class SignalsHeld {
 public:
  SignalsHeld();
  ~SignalsHeld();
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_;
};

/// From here on a signal removes `path` first; an empty path ends that. Call with signals held.
void remove_on_signal(const std::string& path);

}  // namespace fovea::cli
