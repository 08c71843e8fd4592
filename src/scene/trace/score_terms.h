// SPDX-License-Identifier: Apache-2.0
//
// The terms of a score: the rows that it multiplies, and the steps of the trace they come from.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "scene/trace/trace_model.h"

namespace fovea::scene {

/// A row of numbers and its step.
struct Operand {
  std::vector<double> numbers;
  const Step* step = nullptr;
};

/// Returns the "query", "key" or "value" of a token for one query head. Without projections,
/// returns the head's part of the embedding.
std::optional<Operand> operand(const TraceModel& model, std::string_view name, std::int64_t head,
                               const Focus& token);

/// The products that a score sums, and the number formats of their factors (null if the factors are
/// not from a step).
struct ScoreTerms {
  std::vector<std::pair<double, double>> factors;
  const StepNumbers* left = nullptr;
  const StepNumbers* right = nullptr;
};

/// Returns the products of q and k, of q W and k for the general score, or of v and the hidden
/// layer for the additive score.
ScoreTerms score_terms(const TraceModel& model, std::int64_t head, const Focus& query,
                       std::int64_t key);

}  // namespace fovea::scene
