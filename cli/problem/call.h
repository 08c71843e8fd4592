// SPDX-License-Identifier: Apache-2.0
//
// The one call that `fovea attend` makes: which function, on which threads, for how much work, and
// how far it is.

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

/// What computes: all give the same, to rounding.
enum class AttendEngine {
  kForward,   ///< attention_forward
  kDecode,    ///< attention_decode: a few queries for each head of keys
  kReference  ///< float64
};

/// "forward", "decode" or "reference".
std::string_view engine_name(AttendEngine engine);

AttendEngine choose_engine(const AttendInputs& inputs);

/// What comes out; absent where it is not asked for. As files have it, in the layout of the inputs.
struct AttendResult {
  Tensor context;
  Tensor lse;
};

/// How the call went.
struct AttendTimes {
  AttendEngine engine = AttendEngine::kForward;
  int threads = 1;       ///< as many as it might use
  bool nothing = false;  ///< to compute: no output has an element, and no call was made
  double seconds = 0.0;
  /// Useful: 2 (head_dim + value_dim) for each pair of a query and a key that it sees.
  double flop = 0.0;
  /// What the CPU's multiply-adds reach, in GFLOP/s; measured after calls that took long enough
  /// for it not to matter.
  std::optional<double> ceiling_gflops;

  std::optional<double> gflops() const;
  /// Of the ceiling.
  std::optional<double> share() const;
};

/// The flop of a call that leaves nothing out and does nothing twice. Where a mask does not tell
/// each row's keys by two ends and has very many pairs, rows spread evenly stand for the others.
/// `dims` are those of a key and a value together.
double useful_flop(const ProblemShape& shape, std::int64_t dims, const AttentionOptions& options);

/// The threads that a call might use.
int threads_of(const Execution& execution);

/// What comes out, as the engine writes it and as the reference is compared with it.
AttentionOutputs outputs_of(const TensorLayout& layout, AttendResult& result);

/// Throws InvalidArgument, in words of options, where these do not fit the problem.
void require_fit(const AttentionOptions& options, const ProblemShape& shape);

/// Computes, with options that fit. Throws InvalidArgument, in words of options, for numbers that
/// float32 does not hold; nothing is written then.
AttendTimes attend(const AttendInputs& inputs, AttentionOptions options,
                   const AttentionOutputs& outputs, Progress& progress);

}  // namespace fovea::cli
