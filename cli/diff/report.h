// SPDX-License-Identifier: Apache-2.0
//
// The output of `fovea diff`: a table, JSON or CSV.

#pragma once

#include <string>
#include <vector>

#include "cli/diff/compare.h"

namespace fovea::cli {

struct DiffReport {
  const Comparison& comparison;
  std::vector<HeadDifference> heads;  ///< in the order of the table
  std::string order;
};

/// Returns a table of the first `top` heads.
std::string diff_text(const DiffReport& report, std::size_t top);
std::string diff_json(const DiffReport& report);
std::string diff_csv(const DiffReport& report);

}  // namespace fovea::cli
