// SPDX-License-Identifier: Apache-2.0
//
// The keys with the largest weights for a query. If there are many keys, text, Markdown and the
// page list only these.

#pragma once

#include <cstdint>
#include <vector>

#include "scene/trace/trace_model.h"

namespace fovea::scene {

/// Number of keys listed if there are many.
inline constexpr std::int64_t kTopKeys = 12;

/// Returns the kTopKeys keys (or all if there are fewer) with the largest weights for the focus
/// query in one head, in descending order. Ties keep the order of the sentence, and NaN comes last.
std::vector<std::int64_t> top_keys(const TraceModel& model, std::int64_t head);

}  // namespace fovea::scene
