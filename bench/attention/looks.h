// SPDX-License-Identifier: Apache-2.0
//
// Recomputation of a small part of a large weight matrix (fovea/weights.h), as measured by
// `fovea-bench looks`.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/attention/machine.h"
#include "bench/attention/measure.h"
#include "cli/shell/progress.h"

namespace fovea::cli {

/// The weights to recompute: those of some queries and keys in the middle of a head that has
/// `length` queries and `length` keys.
struct BenchLook {
  std::int64_t length = 0;
  std::int64_t head_dim = 64;
  std::int64_t queries = 1;
  std::int64_t keys = 0;
  std::int64_t cells = 0;  ///< per side of the pooled map; 0: single weights
  double seconds = 0.0;    ///< time limit of one call

  /// Returns whether this is one query with all keys, computed by attention_row().
  bool is_row() const { return queries == 1 && keys == length; }
};

struct LookResult {
  BenchLook look;
  std::vector<double> seconds;  ///< per call
  /// The largest relative error of a weight or cell.
  double error = 0.0;

  double median_seconds() const;
  double best_seconds() const;
};

/// Returns a description such as "512 x 512 of N 1048576, D 64".
std::string describe(const BenchLook& look);

/// Returns the standard measurements, with shorter sequences if `quick`.
std::vector<BenchLook> standard_looks(bool quick);

/// Returns the time limit of `look` in seconds, if one is set for this CPU and SIMD target.
std::optional<double> look_limit(const BenchLook& look, CpuKind cpu, const std::string& target);

/// Checks the results, then measures the times. Throws WrongResult (reference/comparison.h) if a
/// result is wrong.
std::vector<LookResult> measure_looks(const std::vector<BenchLook>& looks, int threads,
                                      const BenchEffort& effort, Progress& progress);

}  // namespace fovea::cli
