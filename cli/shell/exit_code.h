// SPDX-License-Identifier: Apache-2.0
//
// Exit codes, as the section EXIT STATUS of every manual page lists them.

#pragma once

namespace fovea::cli {

inline constexpr int kFailed = 1;         // the work or a check failed
inline constexpr int kBadInput = 2;       // wrong usage or bad input
inline constexpr int kInterrupted = 128;  // plus the signal's number

}  // namespace fovea::cli
