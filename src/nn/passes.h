// SPDX-License-Identifier: Apache-2.0
//
// Loops of the layers over elements and rows: the parts of a training step other than matrix
// products. Each loop is compiled once per SIMD target and processes a range, so that callers can
// distribute ranges over threads.

#pragma once

#include <cstdint>

#include "fovea/attention_options.h"

namespace fovea::nn::passes {

/// Dropout of elements [begin, end). `begin` is a multiple of kDrawnTogether.
template <class Real>
struct Drop {
  Dropout rule;
  Real factor;       // scales the elements that are kept
  bool relu;         // applies ReLU first
  Real* numbers;     // changed in place
  const Real* past;  // a residual to add, or null
  /// Receives 1 for each kept element and 0 for each dropped one; not stored if null. The size of
  /// the array is the number of elements, rounded up to a multiple of kDrawnTogether.
  std::uint8_t* kept;
  std::int64_t begin, end;
};
inline constexpr std::int64_t kDrawnTogether = 128;

/// Operands of layer normalisation.
template <class Real>
struct Norm {
  std::int64_t width;
  Real epsilon;
  const Real *weight, *bias;
  // The normalised rows [rows, width] and 1 / standard deviation [rows]: written by the forward
  // pass, read by the backward pass.
  Real *normal, *inverse;
};

inline constexpr std::int64_t kLossResults = 4;

/// Rows of logits.
template <class Real>
struct Logits {
  std::int64_t classes, row_stride;
  const Real* logits;
  const std::int64_t* wanted;
  std::int64_t ignored;  // rows whose wanted class is this are skipped; -1 skips none
  double smoothing;
  // [rows, kLossResults]: loss, 1 if the argmax is the target (else 0), the maximum, and the sum of
  // exp(logit - maximum). The last two are apart because their lse, rounded to float32, would take
  // digits from the gradient of large logits.
  double* results;
};

/// The coefficients of one Adam step, shared by all parameters.
template <class Real>
struct AdamStep {
  Real beta1, beta2, rate, root_scale, epsilon, keep;
};

/// The passes of one SIMD target. Ranges of rows or elements are [begin, end). Results depend only
/// on the range and the inputs, and have the same bits on every SIMD target.
template <class Real>
struct Table {
  void (*drop)(const Drop<Real>& drop);
  /// Computes to = kept ? factor * from : 0. May run in place.
  void (*restore)(const std::uint8_t* kept, Real factor, const Real* from, Real* to,
                  std::int64_t count);
  /// Multiplies `gradient` by `factor` where `after` is positive, and by 0 elsewhere. `after` is
  /// the output of ReLU and dropout.
  void (*restore_relu)(const Real* after, Real factor, Real* gradient, std::int64_t count);
  void (*norm_forward)(const Norm<Real>& norm, const Real* x, Real* y, std::int64_t begin,
                       std::int64_t end);
  /// Writes grad_x, and adds the gradients of weight and bias to the sums [width].
  void (*norm_backward)(const Norm<Real>& norm, const Real* grad_y, Real* grad_x, Real* weight_sums,
                        Real* bias_sums, std::int64_t begin, std::int64_t end);
  void (*add)(Real* to, const Real* from, std::int64_t count);
  /// Adds `count` rows to sums[width]. If `factors` is not null, `rows` is first multiplied by
  /// `factors`, element by element.
  void (*add_columns)(const Real* rows, std::int64_t stride, const Real* factors,
                      std::int64_t factor_stride, std::int64_t count, std::int64_t width,
                      Real* sums);
  void (*cross_entropy)(const Logits<Real>& rows, std::int64_t begin, std::int64_t end);
  /// Writes `scale` times the gradient of the sum of losses.
  void (*cross_entropy_gradient)(const Logits<Real>& rows, double scale, Real* gradient,
                                 std::int64_t begin, std::int64_t end);
  void (*adam)(const AdamStep<Real>& step, Real* value, const Real* gradient, Real* mean,
               Real* square, std::int64_t count);
  double (*sum_of_squares)(const Real* numbers, std::int64_t count);
  void (*scale)(Real* numbers, Real by, std::int64_t count);
};

/// Returns the passes for the SIMD target that the kernels use. Throws the errors of
/// kernels::choose_target().
template <class Real>
const Table<Real>& table();

}  // namespace fovea::nn::passes
