// SPDX-License-Identifier: Apache-2.0
//
// Exit codes, as listed in the section EXIT STATUS of every manual page.

#pragma once

namespace fovea::cli {

inline constexpr int kFailed = 1;         // the computation, a check or an output failed
inline constexpr int kBadInput = 2;       // wrong usage or bad input
inline constexpr int kInterrupted = 128;  // plus the signal's number

}  // namespace fovea::cli
