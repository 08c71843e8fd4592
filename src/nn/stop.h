// SPDX-License-Identifier: Apache-2.0
//
// The stop token of the current pass (fovea/nn/stop.h).

#pragma once

#include <stop_token>

namespace fovea::nn {

/// Returns the token of the innermost StopScope of this thread; without one, an empty token.
const std::stop_token& current_stop();

/// Throws Stopped after a stop request.
void throw_if_stopped();

}  // namespace fovea::nn
