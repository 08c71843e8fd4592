// SPDX-License-Identifier: Apache-2.0
//
// The cross-entropy loss of token prediction.

#pragma once

#include <cstdint>
#include <optional>

#include "fovea/export.h"
#include "fovea/nn/buffer.h"
#include "fovea/tensor.h"

namespace fovea::nn {

struct CrossEntropyOptions {
  /// Targets with this id, such as padding, are ignored.
  std::optional<std::int64_t> ignored = std::nullopt;
  /// Label smoothing (Szegedy et al. 2016): the share of the probability, in [0, 1), that is spread
  /// evenly over all classes.
  double label_smoothing = 0.0;
};

/// The mean of -log softmax(logits)[target] over the targets that are not ignored, as in PyTorch's
/// nn.CrossEntropyLoss.
class FOVEA_API CrossEntropy {
 public:
  explicit CrossEntropy(const CrossEntropyOptions& options = {});

  /// Returns the loss, or 0 if all targets are ignored. logits [..., classes] are float32 or
  /// float64 and must stay valid until backward; targets are int64 [...]. Throws InvalidArgument if
  /// a target is not a class.
  double forward(const TensorView& logits, const TensorView& targets);
  /// Returns the gradient of `factor` times the loss with respect to the logits, in their shape.
  MutableTensorView backward(double factor = 1.0);

  /// Return the number of targets in the last forward that were not ignored, and the number of
  /// these whose logit was the largest.
  std::int64_t counted() const { return counted_; }
  std::int64_t correct() const { return correct_; }

 private:
  CrossEntropyOptions options_;
  TensorView logits_;
  Shape shape_;
  std::int64_t counted_ = 0, correct_ = 0;
  Buffer targets_;
  Buffer results_;  // per row: loss, whether the prediction was correct, lse
  Buffer grad_;
};

}  // namespace fovea::nn
