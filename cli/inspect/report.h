// SPDX-License-Identifier: Apache-2.0
//
// The output of `fovea inspect`, as text or JSON.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fovea/files.h"

#include "files/summary.h"

namespace fovea::cli {

/// A tensor of the file. If it cannot be read, it has no summary, and `info.unreadable` has the
/// reason.
struct InspectedTensor {
  TensorInfo info;
  std::optional<Summary> summary;
};

struct InspectReport {
  std::string file;
  FileFormat format = FileFormat::kNpy;
  std::vector<InspectedTensor> tensors = {};
  /// Whether ranges are omitted (--names).
  bool names_only = false;
};

/// Returns a size in the unit that leaves at most three digits before the decimal point.
std::string size_text(std::int64_t bytes);

std::string inspect_text(const InspectReport& report);
std::string inspect_json(const InspectReport& report);

}  // namespace fovea::cli
