// SPDX-License-Identifier: Apache-2.0
//
// The output of `fovea heads`: a table with bars, JSON or CSV.

#pragma once

#include <string>

#include "cli/heads/compute.h"
#include "cli/problem/inputs.h"
#include "cli/problem/rules.h"

namespace fovea::cli {

struct HeadsReport {
  const AttendInputs& inputs;
  const AttendRules& rules;
  const HeadsResult& result;  ///< heads are printed in this order
  std::string order;          ///< the value of --sort, for the heading
};

/// Returns a table of at most `width` columns (60 or more), with the statistics that fit.
std::string heads_text(const HeadsReport& report, int width);
std::string heads_json(const HeadsReport& report);
std::string heads_csv(const HeadsReport& report);

}  // namespace fovea::cli
