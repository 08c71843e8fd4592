// SPDX-License-Identifier: Apache-2.0
//
// Memory that a layer keeps between steps, so that steps do not allocate.

#pragma once

#include "fovea/tensor.h"

namespace fovea::nn {

class Buffer {
 public:
  /// Returns a contiguous tensor with unspecified contents, in memory that grows but never shrinks.
  /// Invalidates the previously returned view.
  MutableTensorView of(DType dtype, const Shape& shape) {
    if (!memory_.defined() || memory_.dtype() != dtype || memory_.size() < element_count(shape)) {
      memory_ = Tensor(dtype, {element_count(shape)});
    }
    last_ = {memory_.view().data(), dtype, shape, contiguous_strides(shape)};
    return last_;
  }
  /// Returns the result of the last call to of().
  const MutableTensorView& last() const { return last_; }

 private:
  Tensor memory_;
  MutableTensorView last_;
};

}  // namespace fovea::nn
