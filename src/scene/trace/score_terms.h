// SPDX-License-Identifier: Apache-2.0
//
// What a number was made from: the rows that a score multiplies, in the terms of a trace.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "scene/trace/trace_model.h"

namespace fovea::scene {

/// A row of numbers, and the step they come from.
struct Operand {
  std::vector<double> numbers;
  const Step* step = nullptr;
};

/// A token's "query", "key" or "value" for one query head; without projections, the head's part of
/// its embedding.
std::optional<Operand> operand(const TraceModel& model, std::string_view name, std::int64_t head,
                               const Focus& token);

/// What a score sums up, and how its factors are written (null where they are no step's numbers).
struct ScoreTerms {
  std::vector<std::pair<double, double>> factors;
  const StepNumbers* left = nullptr;
  const StepNumbers* right = nullptr;
};

/// Of q and k; of q W and k for the general score; of v and the hidden layer for the additive one.
ScoreTerms score_terms(const TraceModel& model, std::int64_t head, const Focus& query,
                       std::int64_t key);

}  // namespace fovea::scene
