// SPDX-License-Identifier: Apache-2.0
//
// Per-query statistics of `fovea map` as JSON and CSV.

#pragma once

#include <string>

#include "cli/map/compute.h"
#include "picture/words.h"

namespace fovea::cli {

/// Returns an object with the version, title, batch item and head, and one object per query.
std::string stats_as_json(const MapRequest& request, const MapResult& result,
                          const MapWords& words);
/// Returns a header line and one line per query.
std::string stats_as_csv(const MapRequest& request, const MapResult& result, const MapWords& words);

}  // namespace fovea::cli
