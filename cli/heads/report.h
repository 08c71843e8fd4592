// SPDX-License-Identifier: Apache-2.0
//
// The output of `fovea heads`: a table with bars, JSON or CSV.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/heads/compute.h"

namespace fovea::cli {

struct HeadsReport {
  const std::vector<HeadsSource>& sources;  ///< at least one; one if it is not recorded
  const HeadsResult& result;                ///< heads are printed in this order
  std::int64_t heads = 0;  ///< the number of all heads, some of which may be left out
  std::string order;       ///< the value of --sort, for the heading

  bool of_recording() const { return sources.front().recorded() != nullptr; }
};

/// Returns a table of at most `width` columns (60 or more), with the statistics that fit.
std::string heads_text(const HeadsReport& report, int width);
std::string heads_json(const HeadsReport& report);
std::string heads_csv(const HeadsReport& report);

}  // namespace fovea::cli
