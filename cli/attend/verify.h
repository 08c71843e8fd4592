// SPDX-License-Identifier: Apache-2.0
//
// `fovea attend --verify`: recomputes some rows with the reference and compares the result.

#pragma once

#include <cstdint>
#include <optional>

#include "fovea/attention.h"

#include "cli/problem/inputs.h"
#include "cli/problem/rules.h"
#include "cli/shell/progress.h"

namespace fovea::cli {

/// The largest difference from the float64 reference and the tolerance of its row. If rows exceed
/// their tolerance, only these are considered.
struct AttendError {
  double error = 0.0;
  double allowed = 0.0;

  bool fits() const { return error <= allowed; }
};

struct AttendVerdict {
  std::int64_t rows = 0;
  std::optional<AttendError> context;  ///< absent if the output is not computed or has no rows
  std::optional<AttendError> lse;
};

/// Compares up to 64 rows, spaced evenly from the first query of the first head to the last query
/// of the last head. If there are many keys, fewer rows are compared to limit the time, but always
/// the first and the last.
///
/// The tolerance is that of docs/numerics.md ("The 1x rule"): the error of the naive computation in
/// the coarsest type, plus a few roundings of each row's scores and outputs.
/// Memory  one head's key, value and query in float64.
AttendVerdict verify(const AttendInputs& inputs, const AttendRules& rules,
                     const AttentionOutputs& outputs, Progress& progress);

}  // namespace fovea::cli
