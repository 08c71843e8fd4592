// SPDX-License-Identifier: Apache-2.0
//
// `fovea attend --verify`: some rows once more by the reference, and how far the result is from
// them.

#pragma once

#include <cstdint>
#include <optional>

#include "fovea/attention.h"

#include "cli/problem/inputs.h"
#include "cli/problem/rules.h"
#include "cli/shell/progress.h"

namespace fovea::cli {

/// The largest difference from the reference in float64, and how much is allowed there: in the row
/// that has it, or in one that exceeds what it is allowed.
struct AttendError {
  double error = 0.0;
  double allowed = 0.0;

  bool fits() const { return error <= allowed; }
};

struct AttendVerdict {
  std::int64_t rows = 0;
  std::optional<AttendError> context;  ///< of what there is, if there are rows
  std::optional<AttendError> lse;
};

/// Compares up to 64 rows, spread evenly from the first query of the first head to the last of the
/// last; fewer where keys are so many that these would take long, but the first and the last.
///
/// Allowed is what docs/numerics.md allows ("The 1x rule"): the error of the naive computation in
/// the coarsest type, and some roundings of each row's scores and outputs beyond.
/// Memory  one head's key, value and query in float64.
AttendVerdict verify(const AttendInputs& inputs, const AttendRules& rules,
                     const AttentionOutputs& outputs, Progress& progress);

}  // namespace fovea::cli
