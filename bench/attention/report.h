// SPDX-License-Identifier: Apache-2.0
//
// Reports of `fovea-bench`: aligned tables, or one JSON object.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fovea/info.h"

#include "bench/attention/looks.h"
#include "bench/attention/machine.h"
#include "bench/attention/measure.h"

namespace fovea::cli {

/// All measurements of one run; parts that were not selected are empty.
struct BenchReport {
  BuildInfo build;
  Machine machine;
  std::vector<CeilingResult> ceilings;
  std::vector<RowResult> forward;
  std::vector<RowResult> backward;
  std::vector<RowResult> decode;
  std::vector<RowResult> lenses;
  std::vector<LookResult> looks;
  std::optional<TinyResult> tiny;
  std::optional<MemoryResult> memory;
};

/// Returns two lines about the machine and the build.
std::string heading_text(const BenchReport& report);
std::string ceilings_text(const BenchReport& report);
std::string forward_text(const BenchReport& report);
std::string backward_text(const BenchReport& report);
std::string decode_text(const BenchReport& report);
std::string lenses_text(const BenchReport& report);
std::string looks_text(const BenchReport& report);
std::string tiny_text(const BenchReport& report);
std::string memory_text(const BenchReport& report);

/// Returns the whole report as JSON, with every sample. The help page lists its members.
std::string bench_json(const BenchReport& report);

}  // namespace fovea::cli
