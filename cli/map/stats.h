// SPDX-License-Identifier: Apache-2.0
//
// What is told of each row, as JSON and as CSV.

#pragma once

#include <string>

#include "cli/map/compute.h"
#include "picture/words.h"

namespace fovea::cli {

/// An object for each query, after what they are of.
std::string stats_as_json(const MapRequest& request, const MapResult& result,
                          const MapWords& words);
/// A line for each query, after one with the columns' names.
std::string stats_as_csv(const MapRequest& request, const MapResult& result, const MapWords& words);

}  // namespace fovea::cli
