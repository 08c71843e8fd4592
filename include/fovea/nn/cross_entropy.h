// SPDX-License-Identifier: Apache-2.0
//
// The loss of guessing tokens.

#pragma once

#include <cstdint>
#include <optional>

#include "fovea/export.h"
#include "fovea/nn/buffer.h"
#include "fovea/tensor.h"

namespace fovea::nn {

struct CrossEntropyOptions {
  /// Targets of this number do not count: padding.
  std::optional<std::int64_t> ignored = std::nullopt;
  /// This share of each target is spread over all classes (Szegedy et al. 2016), in [0, 1).
  double label_smoothing = 0.0;
};

/// -log softmax(logits)[target], the mean over targets that count, as PyTorch's
/// nn.CrossEntropyLoss.
class FOVEA_API CrossEntropy {
 public:
  explicit CrossEntropy(const CrossEntropyOptions& options = {});

  /// logits [..., classes], float32 or float64, to be there still at backward; targets int64 [...].
  /// The loss; 0 where no target counts. Throws InvalidArgument for a target that is no class.
  double forward(const TensorView& logits, const TensorView& targets);
  /// The gradient of `factor` times the loss with respect to logits, of their shape.
  MutableTensorView backward(double factor = 1.0);

  /// Targets that counted in the last forward, and of these the ones of which the logit was the
  /// largest.
  std::int64_t counted() const { return counted_; }
  std::int64_t correct() const { return correct_; }

 private:
  CrossEntropyOptions options_;
  TensorView logits_;
  Shape shape_;
  std::int64_t counted_ = 0, correct_ = 0;
  Buffer targets_;
  Buffer results_;  // of each row: loss, whether it was right, lse
  Buffer grad_;
};

}  // namespace fovea::nn
