// SPDX-License-Identifier: Apache-2.0
//
// Adam, what bounds its steps, and how long they are when.

#pragma once

#include <cstdint>
#include <deque>

#include "fovea/export.h"
#include "fovea/nn/parameters.h"
#include "fovea/tensor.h"

namespace fovea::nn {

/// As torch.optim's, by the same names.
struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  /// Each step takes this share, times the learning rate, off the parameters themselves: AdamW
  /// (Loshchilov and Hutter 2019). 0: Adam.
  double weight_decay = 0.0;
};

/// Adam (Kingma and Ba 2015) and AdamW, as torch.optim has them.
class FOVEA_API Adam {
 public:
  /// Of all parameters that are there now. Throws InvalidArgument for options out of range.
  explicit Adam(Parameters& parameters, const AdamOptions& options = {});

  /// Moves the parameters against their gradients.
  void step(double learning_rate);

  /// Steps made so far; may be set to go on with what another run had made.
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

  /// What is kept of a parameter's gradients: means of them and of their squares, of its shape.
  struct Moments {
    Parameter* parameter;
    Tensor mean, square;
  };
  /// In the order of the parameters.
  std::deque<Moments>& moments() { return moments_; }
  const std::deque<Moments>& moments() const { return moments_; }

 private:
  AdamOptions options_;
  std::int64_t steps_ = 0;
  std::deque<Moments> moments_;
};

/// The Euclidean norm of all gradients as one vector.
FOVEA_API double gradient_norm(const Parameters& parameters);

/// Scales all gradients so that their norm is at most `largest`, as PyTorch's clip_grad_norm_;
/// returns the norm that they had. A norm that is not finite leaves them alone.
FOVEA_API double clip_gradients(Parameters& parameters, double largest);

/// Learning rates that grow evenly for so many steps, then fall with the inverse root of the step
/// (Vaswani et al. 2017, sec. 5.3, scaled to have `peak` as their largest) or with a cosine.
struct FOVEA_API Schedule {
  enum class Kind : std::uint8_t {
    kConstant,
    kInverseRoot,
    kCosine,  ///< to 0 at step `total`
  };
  double peak = 1e-3;
  Kind kind = Kind::kConstant;
  std::int64_t warmup = 0;
  std::int64_t total = 0;

  /// Of the step that is made after `steps` others.
  double rate(std::int64_t steps) const;
};

}  // namespace fovea::nn
