// SPDX-License-Identifier: Apache-2.0
//
// The visible pairs of a problem as a mask, for code that counts them.

#pragma once

#include "fovea/attention_options.h"
#include "fovea/mask.h"

namespace fovea {

/// Returns the mask of the options without the pairs that a bias of -inf hides. Reads the bias once,
/// and allocates a byte per element if it hides any pair. Elements of -inf in a relative table are
/// ignored.
Mask visible_pairs(const AttentionOptions& options);

}  // namespace fovea
