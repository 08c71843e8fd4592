// SPDX-License-Identifier: Apache-2.0
//
// Measurement of attention calls: results are compared with the reference first, then
// timings of calls and ceilings alternate.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/attention/table.h"
#include "cli/shell/progress.h"

namespace fovea::cli {

/// Number and duration of measurements.
struct BenchEffort {
  int rounds = 7;
  /// Calls of a row are repeated in each round until they have taken this long.
  double seconds_per_round = 0.1;
  /// Duration of a ceiling measurement before or after a row, and of a separate one.
  double seconds_per_ceiling = 0.03;
  double seconds_per_own_ceiling = 1.0;
};

struct CeilingResult {
  int threads = 1;
  double fma_gflops = 0.0;
  double bf16_gflops = 0.0;  ///< 0 if the target has no bfloat16 dot products
  double read_gb_per_s = 0.0;
};

/// One round of one row.
struct BenchRound {
  std::vector<double> seconds;          ///< per call
  std::vector<double> against_seconds;  ///< per call of the comparison, timed alternately
  double ceiling_before = 0.0;          ///< GFLOP/s, or GB/s read
  double ceiling_after = 0.0;
};

struct RowResult {
  BenchRow row;
  /// Useful flop, or for decoding the bytes of all keys and values.
  double work = 0.0;
  /// The largest error against the float64 reference, and the tolerance.
  double error = 0.0;
  double allowed_error = 0.0;
  std::vector<BenchRound> rounds;

  double median_seconds() const;
  double best_seconds() const;
  /// Returns 10^-9 * work per second at the median time: GFLOP/s or GB/s.
  double rate() const;
  /// Returns the median over rounds of the speed divided by the higher of the ceilings measured
  /// before and after the round.
  double share() const;
  /// Returns the median over rounds of the comparison's time divided by this row's time.
  double speedup() const;
};

struct TinyResult {
  std::int64_t calls_per_sample = 0;
  std::vector<double> seconds;  ///< per call, one for each sample

  double median_seconds() const;
  double best_seconds() const;
};

/// Memory used by a call in addition to its inputs and outputs.
struct MemoryResult {
  BenchProblem problem;
  /// Peak resident memory of the process during the call minus the size of inputs and outputs.
  double bytes = 0.0;
};

/// Returns the median; for an even count, the mean of the two middle values, so that the choice
/// between them does not bias comparisons of few rounds.
double median(std::vector<double> values);

CeilingResult measure_ceilings(int threads, const BenchEffort& effort);

/// Checks and measures all rows. Throws WrongResult (reference/comparison.h) if a result is wrong,
/// and InvalidArgument if the options of a row do not fit its problem.
std::vector<RowResult> measure_rows(const std::vector<BenchRow>& rows, const BenchEffort& effort,
                                    Progress& progress);

/// Measures attention_forward with 4 queries, 4 keys and head and value dimension 3. Throws
/// WrongResult if the result is wrong.
TinyResult measure_tiny(const BenchEffort& effort);

/// Measures the memory of one call. Returns nothing if the system does not report the peak memory
/// of a process, or cannot reset it before the call. Throws WrongResult if the result is wrong.
std::optional<MemoryResult> measure_memory(const BenchProblem& problem, int threads);

}  // namespace fovea::cli
