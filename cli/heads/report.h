// SPDX-License-Identifier: Apache-2.0
//
// What `fovea heads` says: a table with bars, JSON and CSV.

#pragma once

#include <string>

#include "cli/heads/compute.h"
#include "cli/problem/inputs.h"
#include "cli/problem/rules.h"

namespace fovea::cli {

struct HeadsReport {
  const AttendInputs& inputs;
  const AttendRules& rules;
  const HeadsResult& result;  ///< its heads are told in their order
  std::string order;          ///< what they are sorted by, for the table
};

/// At most `width` columns, 60 or more. As much is told of each head as there is room for.
std::string heads_text(const HeadsReport& report, int width);
std::string heads_json(const HeadsReport& report);
std::string heads_csv(const HeadsReport& report);

}  // namespace fovea::cli
