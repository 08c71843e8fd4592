// SPDX-License-Identifier: Apache-2.0
//
// Memory that a layer keeps from one step to the next, so that steps do not allocate.

#pragma once

#include "fovea/tensor.h"

namespace fovea::nn {

class Buffer {
 public:
  /// A contiguous tensor, in memory that grows but never shrinks; what it holds is unspecified. The
  /// one before is gone.
  MutableTensorView of(DType dtype, const Shape& shape) {
    if (!memory_.defined() || memory_.dtype() != dtype || memory_.size() < element_count(shape)) {
      memory_ = Tensor(dtype, {element_count(shape)});
    }
    last_ = {memory_.view().data(), dtype, shape, contiguous_strides(shape)};
    return last_;
  }
  /// What `of` returned last.
  const MutableTensorView& last() const { return last_; }

 private:
  Tensor memory_;
  MutableTensorView last_;
};

}  // namespace fovea::nn
