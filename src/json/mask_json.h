// SPDX-License-Identifier: Apache-2.0
//
// Parses masks and alignment from JSON.

#pragma once

#include <cstdint>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/mask.h"

#include "json/json_reader.h"

namespace fovea::scene {

/// Returns the mask that `node` describes for a problem of this shape. Throws InvalidArgument with
/// the path of the value if it is malformed or a number exceeds `most`.
FOVEA_API Mask parse_mask(const JsonNode& node, const ProblemShape& shape, std::int64_t most);

/// Returns the alignment that `node` describes. Throws InvalidArgument in the same way as
/// parse_mask().
FOVEA_API Alignment parse_alignment(const JsonNode& node, const ProblemShape& shape);

}  // namespace fovea::scene
