// SPDX-License-Identifier: Apache-2.0
//
// The standard table of `fovea bench forward`, and the speed below which no row may fall.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench_problem.h"
#include "machine.h"

namespace fovea::cli {

/// Floors, as shares of the ceiling with one thread on Zen 4; 0 where none was set.
struct BenchFloors {
  double avx3 = 0.0;
  double avx2 = 0.0;
  /// Two threads, as a multiple of one.
  double two_threads = 0.0;
};

struct BenchRow {
  BenchProblem problem;
  int threads = 1;
  /// Measure one thread as well, in turns, and tell the ratio.
  bool against_one_thread = false;
  BenchFloors floors = {};
};

/// All rows, with `threads`; on more than one CPU followed by those that compare two with one.
std::vector<BenchRow> standard_table(int threads, int cpus);

/// The floor of a row's share of the ceiling on this machine with this SIMD target, if there is
/// one.
std::optional<double> share_floor(const BenchRow& row, CpuKind cpu, const std::string& target);

/// The floor of a row's speed as a multiple of one thread's, if there is one.
std::optional<double> speedup_floor(const BenchRow& row, CpuKind cpu, const std::string& target);

/// A call on 4 x 4 x 3 numbers takes at most this many seconds.
std::optional<double> tiny_limit(CpuKind cpu, const std::string& target);

}  // namespace fovea::cli
