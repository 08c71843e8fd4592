// SPDX-License-Identifier: Apache-2.0
//
// A rectangle of weights as a table with tokens along both axes.

#pragma once

#include <string>
#include <vector>

#include "fovea/map.h"
#include "fovea/tensor.h"

namespace fovea::cli {

/// The ranges of a tile, and the tokens of all queries and keys, which may be missing.
struct TileAxes {
  IndexRange queries;
  IndexRange keys;
  const std::vector<std::string>& query_tokens;
  const std::vector<std::string>& key_tokens;
};

/// Returns a table of at most `width` columns. Keys and queries in the middle are left out if there
/// are too many.
std::string tile_as_text(const Tensor& tile, const TileAxes& axes, int width);

}  // namespace fovea::cli
