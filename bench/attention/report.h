// SPDX-License-Identifier: Apache-2.0
//
// What `fovea-bench` says of its measurements: aligned tables, or one JSON object.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fovea/info.h"

#include "bench/attention/looks.h"
#include "bench/attention/machine.h"
#include "bench/attention/measure.h"

namespace fovea::cli {

/// Everything that one run measured; parts that were not asked for are empty.
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

/// The machine and the build, in two lines.
std::string heading_text(const BenchReport& report);
std::string ceilings_text(const BenchReport& report);
std::string forward_text(const BenchReport& report);
std::string backward_text(const BenchReport& report);
std::string decode_text(const BenchReport& report);
std::string lenses_text(const BenchReport& report);
std::string looks_text(const BenchReport& report);
std::string tiny_text(const BenchReport& report);
std::string memory_text(const BenchReport& report);

/// All of it, with every sample; the help page has the members.
std::string bench_json(const BenchReport& report);

}  // namespace fovea::cli
