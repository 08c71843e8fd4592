// SPDX-License-Identifier: Apache-2.0
//
// The Adam optimizer, gradient clipping and learning-rate schedules.

#pragma once

#include <cstdint>
#include <deque>

#include "fovea/export.h"
#include "fovea/nn/parameters.h"
#include "fovea/tensor.h"

namespace fovea::nn {

/// Options of Adam, with the names used in torch.optim.
struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  /// Each step multiplies the parameters by 1 - learning rate * weight_decay: AdamW (Loshchilov and
  /// Hutter 2019). 0: Adam.
  double weight_decay = 0.0;
};

/// Adam (Kingma and Ba 2015) and AdamW, as in torch.optim.
class FOVEA_API Adam {
 public:
  /// Optimizes all parameters that exist at construction. Throws InvalidArgument if an option is
  /// out of range.
  explicit Adam(Parameters& parameters, const AdamOptions& options = {});

  /// Updates the parameters from their gradients.
  void step(double learning_rate);

  /// The number of steps taken so far. Can be set to resume an earlier run; throws InvalidArgument
  /// for a negative number.
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps);

  /// Running means of a parameter's gradients and of their squares, in the parameter's shape.
  struct Moments {
    Parameter* parameter;
    Tensor mean, square;
  };
  /// The moments, in the order of the parameters.
  std::deque<Moments>& moments() { return moments_; }
  const std::deque<Moments>& moments() const { return moments_; }

 private:
  AdamOptions options_;
  std::int64_t steps_ = 0;
  std::deque<Moments> moments_;
};

/// Returns the Euclidean norm of all gradients as one vector.
FOVEA_API double gradient_norm(const Parameters& parameters);

/// Scales all gradients so that their norm is at most `largest`, as PyTorch's clip_grad_norm_ does.
/// Returns the norm before scaling. If the norm is not finite, the gradients are unchanged.
FOVEA_API double clip_gradients(Parameters& parameters, double largest);

/// A learning-rate schedule: linear warm-up for `warmup` steps, then a constant rate, inverse
/// square root decay (Vaswani et al. 2017, sec. 5.3, scaled to a maximum of `peak`) or cosine
/// decay.
struct FOVEA_API Schedule {
  enum class Kind : std::uint8_t {
    kConstant,
    kInverseRoot,
    kCosine,  ///< reaches 0 at step `total`
  };
  double peak = 1e-3;
  Kind kind = Kind::kConstant;
  std::int64_t warmup = 0;
  std::int64_t total = 0;

  /// Returns the learning rate of the next step, after `steps` completed steps. Throws
  /// InvalidArgument if a number is negative, or if `total` is 0 for a cosine.
  double rate(std::int64_t steps) const;
};

}  // namespace fovea::nn
