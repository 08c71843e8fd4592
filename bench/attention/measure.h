// SPDX-License-Identifier: Apache-2.0
//
// Measuring: results are compared with the reference first; then times and ceilings are taken in
// turns.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/attention/table.h"
#include "cli/shell/progress.h"

namespace fovea::cli {

/// How much is measured.
struct BenchEffort {
  int rounds = 7;
  /// The time that a row's calls take in each round, at least; at least one call is timed.
  double seconds_per_round = 0.1;
  /// The time of one measurement of a ceiling beside a row, and of one by itself.
  double seconds_per_ceiling = 0.03;
  double seconds_per_own_ceiling = 1.0;
};

struct CeilingResult {
  int threads = 1;
  double fma_gflops = 0.0;
  double bf16_gflops = 0.0;  ///< 0 where the target has no such products
  double read_gb_per_s = 0.0;
};

/// One round of one row.
struct BenchRound {
  std::vector<double> seconds;          ///< of each call
  std::vector<double> against_seconds;  ///< the same of what it is compared with, in alternation
  double ceiling_before = 0.0;          ///< GFLOP/s, or GB/s read
  double ceiling_after = 0.0;
};

struct RowResult {
  BenchRow row;
  /// Useful flop, or in decoding the bytes of all keys and values.
  double work = 0.0;
  /// Of the context, against the reference in float64: the largest, and how much was allowed.
  double error = 0.0;
  double allowed_error = 0.0;
  std::vector<BenchRound> rounds;

  double median_seconds() const;
  double best_seconds() const;
  /// 10^9 of that work per second, at the median.
  double rate() const;
  /// The median over rounds of the speed as a share of the higher of the two ceilings around it.
  double share() const;
  /// The median over rounds of the time of what it is compared with, divided by this row's.
  double speedup() const;
};

struct TinyResult {
  std::int64_t calls_per_sample = 0;
  std::vector<double> seconds;  ///< per call, of each sample

  double median_seconds() const;
  double best_seconds() const;
};

/// What a call adds to a process that holds its inputs and outputs.
struct MemoryResult {
  BenchProblem problem;
  /// The largest memory of the process during the call, less those of inputs and outputs.
  double bytes = 0.0;
};

/// Of an even number the mean of the two in the middle: with few rounds neither may win by luck.
double median(std::vector<double> values);

CeilingResult measure_ceilings(int threads, const BenchEffort& effort);

/// Throws WrongResult (reference/comparison.h), and InvalidArgument for a row whose options do not
/// fit its problem.
std::vector<RowResult> measure_rows(const std::vector<BenchRow>& rows, const BenchEffort& effort,
                                    Progress& progress);

/// The C++ call on 4 queries, 4 keys and 3 numbers each. Throws WrongResult.
TinyResult measure_tiny(const BenchEffort& effort);

/// Absent where the system does not tell a process's memory, or not of one call alone. Throws
/// WrongResult.
std::optional<MemoryResult> measure_memory(const BenchProblem& problem, int threads);

}  // namespace fovea::cli
