// SPDX-License-Identifier: Apache-2.0
//
// A score function as a user of the library would write it (fovea/custom_score.h). It computes the
// same as the built-in softcap, so that the cost of a custom score can be compared with it.

#pragma once

#include "fovea/attention_options.h"

namespace fovea::cli {

struct CapParameters {
  double cap = 1.0;
};

/// Returns a custom score that computes cap * tanh(score / cap).
CustomScore make_cap(CapParameters parameters);

}  // namespace fovea::cli
