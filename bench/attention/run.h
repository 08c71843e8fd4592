// SPDX-License-Identifier: Apache-2.0
//
// A call measured by `fovea-bench`, with its tensors.

#pragma once

#include <cstddef>
#include <vector>

#include "bench/attention/problem.h"
#include "bench/attention/table.h"

namespace fovea::cli {

/// The largest error against the float64 reference, and its tolerance: of the context, or of the
/// gradient with the largest error.
struct BenchErrors {
  double error = 0.0;
  double allowed = 0.0;
};

class BenchRun {
 public:
  /// Prepares the call with this many threads; 0 selects the library's default. Throws
  /// InvalidArgument if the options do not fit the problem.
  BenchRun(BenchCall call, const BenchProblem& problem, int threads);

  void run();
  /// Returns the seconds of a call. Decoding reads several copies of keys and values in turn if
  /// they are larger than the last-level cache, which would otherwise keep a part of them.
  double timed_run();
  /// Returns the bytes of all copies of keys and values.
  std::size_t read_bytes() const;
  /// Returns the size of query, key, value, context and lse.
  double bytes() const;

  /// Runs the call and compares some rows with the reference. Throws WrongResult if an error
  /// exceeds its tolerance.
  BenchErrors check();

 private:
  void run(BenchTensors& tensors);
  BenchErrors check_context();
  BenchErrors check_gradients();

  BenchCall call_;
  BenchProblem problem_;
  BenchTensors tensors_;
  std::vector<BenchTensors> copies_;  // further ones
  std::size_t next_ = 0;              // 0 stands for tensors_
};

}  // namespace fovea::cli
