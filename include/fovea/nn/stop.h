// SPDX-License-Identifier: Apache-2.0
//
// Stopping long passes of layers.

#pragma once

#include <stop_token>

#include "fovea/export.h"

namespace fovea::nn {

/// While this object exists, a stop request ends the passes of layers in this thread with the
/// exception Stopped: within attention after a fraction of a second, elsewhere before the next
/// matrix product or loop over rows.
///
/// backward cannot follow a stopped forward. A stopped backward may have added to some gradients.
/// Optimizers stop as well, after some of the parameters have changed, so they should run outside.
/// The scope applies to a thread, because passes have no options.
class FOVEA_API StopScope {
 public:
  explicit StopScope(std::stop_token stop);
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;
  ~StopScope();

 private:
  std::stop_token before_;  // of the enclosing scope
};

}  // namespace fovea::nn
