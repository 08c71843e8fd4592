// SPDX-License-Identifier: Apache-2.0
//
// One of the calls that `fovea-bench` measures, with its tensors.

#pragma once

#include "bench/attention/problem.h"
#include "bench/attention/table.h"

namespace fovea::cli {

/// Of the context, or the gradient that is farthest off, against the reference in float64: the
/// largest error, and how much was allowed.
struct BenchErrors {
  double error = 0.0;
  double allowed = 0.0;
};

class BenchRun {
 public:
  /// `threads`: 0 as in a call that says nothing of them. Throws InvalidArgument when the options
  /// do not fit the problem.
  BenchRun(BenchCall call, const BenchProblem& problem, int threads);

  void run();
  double timed_run();
  /// Of inputs and outputs.
  double bytes() const;

  /// Runs, and compares some rows with the reference. Throws WrongResult.
  BenchErrors check();

 private:
  BenchErrors check_context();
  BenchErrors check_gradients();

  BenchCall call_;
  BenchProblem problem_;
  BenchTensors tensors_;
};

}  // namespace fovea::cli
