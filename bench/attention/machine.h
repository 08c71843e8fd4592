// SPDX-License-Identifier: Apache-2.0
//
// The CPU of a measurement: its name, and its kind if Fovea has performance floors for it.

#pragma once

#include <string>

namespace fovea::cli {

enum class CpuKind { kOther, kZen4, kZen5 };

struct Machine {
  /// The model name that the CPU reports, or "unknown" if the system does not provide it. A name
  /// without a number is followed by the generation, as in "AMD EPYC (Zen 4)", or by family and
  /// model.
  std::string cpu = "unknown";
  CpuKind kind = CpuKind::kOther;
};

/// Returns the first CPU listed in Linux's /proc/cpuinfo.
Machine this_machine();

}  // namespace fovea::cli
