// SPDX-License-Identifier: Apache-2.0
//
// Masks and alignment in JSON, read and written.

#pragma once

#include <cstdint>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/mask.h"

#include "json/json_reader.h"
#include "json/tensor_lookup.h"

namespace fovea::scene {

/// Returns the mask that `node` describes for a problem of this shape. Throws InvalidArgument with
/// the path of the value if it is malformed or a number exceeds `most`.
FOVEA_API Mask parse_mask(const JsonNode& node, const ProblemShape& shape, std::int64_t most,
                          const TensorLookup& tensors = {});

/// Returns the alignment that `node` describes. Throws InvalidArgument in the same way as
/// parse_mask().
FOVEA_API Alignment parse_alignment(const JsonNode& node, const ProblemShape& shape);

/// Returns the JSON that parse_mask() reads as the same mask. Document ids, dense masks and long
/// lists of key lengths are tensors. Throws InvalidArgument if operators are nested too deeply for
/// the reader.
FOVEA_API Json mask_json(const Mask& mask, const TensorNaming& name);
FOVEA_API Json alignment_json(const Alignment& alignment);

/// The longest list of numbers that is written as text; longer ones are tensors.
inline constexpr std::size_t kMaxNumbersAsText = 16;

}  // namespace fovea::scene
