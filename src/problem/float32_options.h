// SPDX-License-Identifier: Apache-2.0
//
// Limits of options whose numbers kernels hold as float32.

#pragma once

#include "fovea/attention_options.h"
#include "fovea/export.h"

namespace fovea {

/// Throws InvalidArgument if options overflow in float32, or a softcap underflows: they are
/// multiplied by factors and stored in it, unless the inputs are float64. `scale` is
/// score_scale()'s.
FOVEA_API void check_float32(const ScoreOptions& score, double scale);

}  // namespace fovea
