// SPDX-License-Identifier: Apache-2.0
//
// The engine call of `fovea attend`: choice of function, threads, flop count and progress.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "fovea/attention.h"
#include "fovea/attention_options.h"
#include "fovea/tensor.h"

#include "cli/problem/inputs.h"
#include "cli/shell/progress.h"

namespace fovea::cli {

/// The code that computes the outputs. Both give the same result up to rounding.
enum class AttendEngine {
  kForward,   ///< the kernels of attention_forward
  kReference  ///< the reference, for float64
};

/// Returns "forward" or "reference".
std::string_view engine_name(AttendEngine engine);

AttendEngine choose_engine(const AttendInputs& inputs);

/// The outputs in the layout of the inputs; undefined if not requested.
struct AttendResult {
  Tensor context;
  Tensor lse;
};

/// Statistics of the call.
struct AttendTimes {
  AttendEngine engine = AttendEngine::kForward;
  int threads = 1;       ///< the maximum number of threads
  bool nothing = false;  ///< whether no call was made, because all outputs are empty
  double seconds = 0.0;
  /// Useful flop: 2 (head_dim + value_dim) for each visible pair of query and key.
  double flop = 0.0;
  /// The CPU's peak rate of FMAs. Measured only after calls that are much longer than the
  /// measurement.
  std::optional<double> ceiling_gflops;

  std::optional<double> gflops() const;
  /// Returns the speed as a share of the ceiling.
  std::optional<double> share() const;
};

/// Returns the flop count of a call, excluding skipped and repeated work. Rows are sampled evenly
/// if there are very many pairs and the mask does not give each row a contiguous range of keys.
/// `dims` is head_dim + value_dim.
double useful_flop(const ProblemShape& shape, std::int64_t dims, const AttentionOptions& options);

/// Returns the maximum number of threads of a call.
int threads_of(const Execution& execution);

/// Returns views of the result with heads first, as the engine writes it and --verify reads it.
AttentionOutputs outputs_of(const TensorLayout& layout, AttendResult& result);

/// If the options do not fit the problem, throws InvalidArgument with a message that names the
/// option.
void require_fit(const AttentionOptions& options, const ProblemShape& shape);

/// Computes the outputs. `options` must be valid for the inputs. If a number does not fit float32,
/// throws InvalidArgument with a message that names the option before anything is written.
AttendTimes attend(const AttendInputs& inputs, AttentionOptions options,
                   const AttentionOutputs& outputs, Progress& progress);

}  // namespace fovea::cli
