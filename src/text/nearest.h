// SPDX-License-Identifier: Apache-2.0
//
// "Did you mean ...?": the known name most like the one that came.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/export.h"

namespace fovea {

/// The candidate with the fewest edits (insert, delete, replace, swap neighbours; case counts for
/// little), when that is few enough to be a slip; the first of equals.
std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates);

/// " (did you mean "weights"?)", or nothing.
FOVEA_API std::string did_you_mean(std::string_view word,
                                   const std::vector<std::string>& candidates);

}  // namespace fovea
