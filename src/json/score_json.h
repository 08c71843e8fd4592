// SPDX-License-Identifier: Apache-2.0
//
// Softcap, biases and sinks in JSON, read and written.

#pragma once

#include "fovea/attention_options.h"
#include "fovea/export.h"

#include "json/json_reader.h"
#include "json/tensor_lookup.h"

namespace fovea::scene {

/// Adds the options in the object `node` to `score`: softcap, bias, alibi, relative and sinks;
/// other keys, such as scale, are the caller's. Throws InvalidArgument with the path of the value
/// if it is malformed or does not fit the problem.
FOVEA_API void parse_score_options(const JsonNode& node, const ProblemShape& shape,
                                   ScoreOptions& score, const TensorLookup& tensors = {});

/// Returns the object that parse_score_options() reads as the same options, with "scale". Biases,
/// tables and long lists are tensors. Throws InvalidArgument for a custom score function, which
/// cannot be written.
FOVEA_API Json score_json(const ScoreOptions& score, const TensorNaming& name);

}  // namespace fovea::scene
