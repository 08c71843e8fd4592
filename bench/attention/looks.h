// SPDX-License-Identifier: Apache-2.0
//
// Looks at a few of very many weights (fovea/weights.h), as `fovea-bench looks` measures them.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/attention/machine.h"
#include "bench/attention/measure.h"
#include "cli/shell/progress.h"

namespace fovea::cli {

/// What is looked at: some queries and keys in the middle of a head that has `length` of each.
struct BenchLook {
  std::int64_t length = 0;
  std::int64_t head_dim = 64;
  std::int64_t queries = 1;
  std::int64_t keys = 0;
  std::int64_t cells = 0;  ///< in each direction, of a pooled look; 0: weights
  double seconds = 0.0;    ///< that it takes at most

  /// All keys of one query, which attention_row() finds.
  bool is_row() const { return queries == 1 && keys == length; }
};

struct LookResult {
  BenchLook look;
  std::vector<double> seconds;  ///< of each call
  /// The largest share that a weight or cell is off by.
  double error = 0.0;

  double median_seconds() const;
  double best_seconds() const;
};

/// "512 x 512 of N 1048576, D 64".
std::string describe(const BenchLook& look);

/// The standard looks; `quick` makes them shorter.
std::vector<BenchLook> standard_looks(bool quick);

/// What a look takes at most on this machine with this SIMD target, if that was set.
std::optional<double> look_limit(const BenchLook& look, CpuKind cpu, const std::string& target);

/// Throws WrongResult (reference/comparison.h).
std::vector<LookResult> measure_looks(const std::vector<BenchLook>& looks, int threads,
                                      const BenchEffort& effort, Progress& progress);

}  // namespace fovea::cli
