// SPDX-License-Identifier: Apache-2.0
//
// Inputs as JSON.

#pragma once

#include <string>

#include "view/input/input.h"

namespace fovea::view {

/// Returns {"id", "name", "path", "kind", "bytes", "fingerprint", "model", "source", "changed",
/// "layers": [{"label", "layer", "kind", "batch", "name", "heads", "queries", "keys", "head_dim",
/// "dtype", "mask", "score", "query_tokens", "key_tokens", "values", "same_tokens"}]}. "changed" is
/// the path of a file that has changed, or null.
std::string describe(const Input& input);

}  // namespace fovea::view
