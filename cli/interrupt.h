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

}  // namespace fovea::cli
