// SPDX-License-Identifier: Apache-2.0
//
// The numbers that the questions of a scene ask for.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "scene/trace/trace_model.h"

namespace fovea::scene {

/// The number that answers a question, in the step for all words: a step of the focus is a part of
/// that one.
struct AskedNumber {
  const Question* question = nullptr;
  const Step* step = nullptr;
  std::array<std::int64_t, 5> place = {};  ///< item, head, plane, row, column
  std::string answer;                      ///< as in the tables of the step
};

/// Returns one entry per question.
std::vector<AskedNumber> asked_numbers(const TraceModel& model);

}  // namespace fovea::scene
