// SPDX-License-Identifier: Apache-2.0
//
// Spelling suggestions ("did you mean ...?") for unknown names.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/export.h"

namespace fovea {

/// Returns the candidate with the smallest edit distance (insertions, deletions, replacements and
/// transpositions of neighbours; case is ignored), or nothing if the distance is too large for a
/// misspelling. The first candidate wins ties.
std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates);

/// Returns " (did you mean "weights"?)", or an empty string.
FOVEA_API std::string did_you_mean(std::string_view word,
                                   const std::vector<std::string>& candidates);

}  // namespace fovea
