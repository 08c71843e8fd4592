// SPDX-License-Identifier: Apache-2.0
//
// What `fovea inspect` has found, as text or JSON.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fovea/files.h"

#include "files/summary.h"

namespace fovea::cli {

/// A tensor of the file; one that cannot be read has no summary, and says why in `info.unreadable`.
struct InspectedTensor {
  TensorInfo info;
  std::optional<Summary> summary;
};

struct InspectReport {
  std::string file;
  FileFormat format = FileFormat::kNpy;
  std::vector<InspectedTensor> tensors = {};
  /// Without ranges, for they were not asked for.
  bool names_only = false;
};

std::string inspect_text(const InspectReport& report);
std::string inspect_json(const InspectReport& report);

}  // namespace fovea::cli
