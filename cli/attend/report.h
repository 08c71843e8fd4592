// SPDX-License-Identifier: Apache-2.0
//
// The report of `fovea attend`: a few aligned lines, or a JSON object.

#pragma once

#include <optional>
#include <string>

#include "cli/attend/outputs.h"
#include "cli/attend/verify.h"
#include "cli/problem/call.h"
#include "cli/problem/inputs.h"
#include "cli/problem/rules.h"

namespace fovea::cli {

struct AttendReport {
  const AttendInputs& inputs;
  const AttendRules& rules;
  const AttendResult& result;
  const OutputPlan& plan;
  AttendTimes times;
  double read_seconds = 0.0;
  double write_seconds = 0.0;
  std::optional<AttendVerdict> verdict;
};

std::string attend_text(const AttendReport& report);
std::string attend_json(const AttendReport& report);

}  // namespace fovea::cli
