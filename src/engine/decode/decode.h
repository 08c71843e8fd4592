// SPDX-License-Identifier: Apache-2.0
//
// Decoding for other calls of the engine.

#pragma once

#include <cstddef>

#include "fovea/attention.h"

#include "engine/call/problem.h"
#include "engine/decode/decode_plan.h"

namespace fovea::engine {

/// Decodes some sequences of a validated problem, which is not float64 and has no dropout. Leaves
/// the outputs of other sequences unchanged. With lenses, all sequences must be decoded.
void decode(const Problem& problem, const Cache& cache, const AttentionOutputs& outputs,
            Decoded which);

/// Returns the number of work items of decode() without lenses, on a cache that is not paged.
std::int64_t decode_items(const Problem& problem, const AttentionOutputs& outputs, Decoded which);

/// Returns the workspace that decode() needs.
std::size_t decode_workspace_bytes(const Problem& problem, Decoded which);

}  // namespace fovea::engine
