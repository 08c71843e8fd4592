// SPDX-License-Identifier: Apache-2.0
//
// The CPU that a measurement was made on: its name, and whether what Fovea promises is known for
// it.

#pragma once

#include <string>

namespace fovea::cli {

enum class CpuKind { kOther, kZen4, kZen5 };

struct Machine {
  /// As the CPU calls itself; "unknown" where the system does not tell.
  std::string cpu = "unknown";
  CpuKind kind = CpuKind::kOther;
};

/// As Linux's /proc/cpuinfo has it; of several CPUs the first counts.
Machine this_machine();

}  // namespace fovea::cli
