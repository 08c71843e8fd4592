// SPDX-License-Identifier: Apache-2.0
//
// A score function as a user of the library would write it (fovea/custom_score.h): what the same
// work costs that the engine's own softcap does.

#pragma once

#include "fovea/attention_options.h"

namespace fovea::cli {

struct CapParameters {
  double cap = 1.0;
};

/// cap tanh(score / cap).
CustomScore make_cap(CapParameters parameters);

}  // namespace fovea::cli
