// SPDX-License-Identifier: Apache-2.0
//
// Loops over the numbers of layers, each compiled once for every SIMD target: what lies between the
// products of a training step. They work on ranges, which their callers hand to threads.

#pragma once

#include <cstdint>

#include "fovea/attention_options.h"

namespace fovea::nn::passes {

/// Dropout of numbers `begin` .. `end`; begin is a multiple of kDrawnTogether.
template <class Real>
struct Drop {
  Dropout rule;
  Real factor;       // of what is kept
  bool relu;         // numbers below 0 become 0 first
  Real* numbers;     // changed in place
  const Real* past;  // to be added; null: nothing
  /// Whether each was kept, 1 or 0, with room to a multiple of kDrawnTogether; null: unsaid.
  std::uint8_t* kept;
  std::int64_t begin, end;
};
inline constexpr std::int64_t kDrawnTogether = 128;

/// Rows of layer normalisation.
template <class Real>
struct Norm {
  std::int64_t width;
  Real epsilon;
  const Real *weight, *bias;
  Real *normal, *inverse;  // [rows, width] and [rows], from forward to backward
};

/// Rows of logits.
template <class Real>
struct Logits {
  std::int64_t classes, row_stride;
  const Real* logits;
  const std::int64_t* wanted;
  std::int64_t ignored;  // a number that is no class where none is
  double smoothing;
  double* results;  // of each row: loss, whether it was right, lse
};

/// What of a step of Adam is the same for all numbers.
template <class Real>
struct AdamStep {
  Real beta1, beta2, rate, root_scale, epsilon, keep;
};

/// The passes of one target. Ranges of rows or numbers go from `begin` to `end`; a result follows
/// from these and from the inputs, to the bit, and not from the target.
template <class Real>
struct Table {
  void (*drop)(const Drop<Real>& drop);
  /// to = kept ? factor from : 0; may be in place.
  void (*restore)(const std::uint8_t* kept, Real factor, const Real* from, Real* to,
                  std::int64_t count);
  /// The same where `after`, what relu and dropout made, is above 0.
  void (*restore_relu)(const Real* after, Real factor, Real* gradient, std::int64_t count);
  void (*norm_forward)(const Norm<Real>& norm, const Real* x, Real* y, std::int64_t begin,
                       std::int64_t end);
  /// Adds to the sums [width] those of the gradients of weight and bias.
  void (*norm_backward)(const Norm<Real>& norm, const Real* grad_y, Real* grad_x, Real* weight_sums,
                        Real* bias_sums, std::int64_t begin, std::int64_t end);
  void (*add)(Real* to, const Real* from, std::int64_t count);
  /// sums[width] += each of `count` rows, or these times those of `factors` (null: none).
  void (*add_columns)(const Real* rows, std::int64_t stride, const Real* factors,
                      std::int64_t factor_stride, std::int64_t count, std::int64_t width,
                      Real* sums);
  void (*cross_entropy)(const Logits<Real>& rows, std::int64_t begin, std::int64_t end);
  /// `scale` times the gradient of the sum of losses.
  void (*cross_entropy_gradient)(const Logits<Real>& rows, double scale, Real* gradient,
                                 std::int64_t begin, std::int64_t end);
  void (*adam)(const AdamStep<Real>& step, Real* value, const Real* gradient, Real* mean,
               Real* square, std::int64_t count);
  double (*sum_of_squares)(const Real* numbers, std::int64_t count);
  void (*scale)(Real* numbers, Real by, std::int64_t count);
};

/// Those of the target that kernels run on. Errors as kernels::choose_target.
template <class Real>
const Table<Real>& table();

}  // namespace fovea::nn::passes
