// SPDX-License-Identifier: Apache-2.0
//
// The standard tables of `fovea-bench forward`, `backward`, `decode` and `lenses`, with the
// performance floors of their rows.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/attention/machine.h"
#include "bench/attention/problem.h"

namespace fovea::cli {

/// The call to measure: attention_forward or attention_backward against the arithmetic ceiling,
/// attention_decode against the memory read ceiling, or attention_forward with lenses against the
/// same call without them.
enum class BenchCall : std::uint8_t { kForward, kBackward, kDecode, kLenses };

/// The comparison for a row's time.
enum class BenchAgainst : std::uint8_t {
  kCeiling,
  kOneThread,  ///< the same call on one thread, timed alternately
  kFloat32,    ///< the same call with float32 tensors, timed alternately
  kPlain,      ///< the same call without lenses, timed alternately
};

/// Performance floors and limits on Zen 4; 0 means none.
struct BenchFloors {
  /// Minimum share of the ceiling, or minimum speedup over the comparison.
  double avx3 = 0.0;
  double avx2 = 0.0;
  /// Subtracted from the floors on Zen 5. Its FMA throughput is twice that of Zen 4, but its loads
  /// and the remaining work are not twice as fast.
  double zen5_allowance = 0.0;
  /// Maximum time of a call.
  double seconds = 0.0;
  /// Maximum time with lenses as a multiple of the time without.
  double cost = 0.0;
};

struct BenchRow {
  BenchProblem problem;
  BenchCall call = BenchCall::kForward;
  int threads = 1;
  BenchAgainst against = BenchAgainst::kCeiling;
  BenchFloors floors = {};
};

/// Returns all rows of a call for `threads` threads. With one thread, rows have floors, and some
/// rows with two threads follow if there is more than one CPU. `bf16_dots`: whether the current
/// SIMD target multiplies bfloat16.
std::vector<BenchRow> standard_table(BenchCall call, int threads, int cpus, bool bf16_dots);

/// Returns the floor of a row's share or speedup, if one is set for this CPU and SIMD target.
std::optional<double> row_floor(const BenchRow& row, CpuKind cpu, const std::string& target);

/// Returns the time limit of a row's call in seconds, if one is set for this CPU and SIMD target.
std::optional<double> row_limit(const BenchRow& row, CpuKind cpu, const std::string& target);

/// Returns the maximum of the row's time with lenses divided by its time without, if one is set for
/// this CPU and SIMD target.
std::optional<double> row_cost(const BenchRow& row, CpuKind cpu, const std::string& target);

/// Returns the problem for the memory measurement, with a shorter sequence if `quick`. Its memory
/// in addition to inputs and outputs is limited to kMemoryLimit bytes.
BenchProblem memory_problem(bool quick);
inline constexpr double kMemoryLimit = 96e6;

/// Returns the time limit in seconds of the call measured by measure_tiny(), if one is set for this
/// CPU and SIMD target.
std::optional<double> tiny_limit(CpuKind cpu, const std::string& target);

}  // namespace fovea::cli
