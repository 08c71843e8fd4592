// SPDX-License-Identifier: Apache-2.0
//
// The statistics and names of heads, as `fovea heads` and `fovea view` show them.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fovea/analysis.h"
#include "fovea/export.h"
#include "fovea/weights.h"

#include "engine/weights/head_names.h"

namespace fovea::recording {

/// The default of HeadSummary::blocks.
inline constexpr std::int64_t kHeadBlocks = 16;

/// Returns the numbers of all heads of a query tensor, by batch item and head, which `compute` is
/// called for. HeadTold::head is the index of the head in the tensors.
FOVEA_API std::vector<engine::HeadTold> tell_heads(
    const TensorView& query, std::int64_t blocks,
    const std::function<void(const HeadSummary&)>& compute);

/// As above, by attention_heads(), and throws as it does.
FOVEA_API std::vector<engine::HeadTold> tell_heads(const WeightInputs& inputs,
                                                   const AttentionOptions& options,
                                                   std::int64_t blocks);

/// Sets the token scores of a head from those of its attention. `head` is its index in the tensors.
FOVEA_API void add_token_scores(const TokenScores& scores, std::int64_t head,
                                engine::HeadTold& told);

}  // namespace fovea::recording
