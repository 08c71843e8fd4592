// SPDX-License-Identifier: Apache-2.0
//
// Masks and alignment, from JSON to rules.

#pragma once

#include <cstdint>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/mask.h"

#include "json/json_reader.h"

namespace fovea::scene {

/// The mask of a problem of this shape, whose numbers are at most `most`. Throws InvalidArgument
/// with the place of what is wrong.
FOVEA_API Mask parse_mask(const JsonNode& node, const ProblemShape& shape, std::int64_t most);

/// The alignment, alike.
FOVEA_API Alignment parse_alignment(const JsonNode& node, const ProblemShape& shape);

}  // namespace fovea::scene
