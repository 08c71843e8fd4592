// SPDX-License-Identifier: Apache-2.0
//
// Of many keys the few that a query looks at most: what text, Markdown and the page list of them.

#pragma once

#include <cstdint>
#include <vector>

#include "scene/trace/trace_model.h"

namespace fovea::scene {

/// Of many keys so many are listed.
inline constexpr std::int64_t kTopKeys = 12;

/// The kTopKeys keys, or all if there are fewer, with the largest weights for the focus query in
/// one head, the largest first; equal ones in the order of the sentence, nan after all numbers.
std::vector<std::int64_t> top_keys(const TraceModel& model, std::int64_t head);

}  // namespace fovea::scene
