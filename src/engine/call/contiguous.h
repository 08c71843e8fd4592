// SPDX-License-Identifier: Apache-2.0
//
// Contiguous tensors for the reference, which would otherwise copy strided ones at every call.

#pragma once

#include "fovea/tensor.h"

namespace fovea::engine {

/// A contiguous view of a tensor. The tensor is copied if it is not contiguous.
class Contiguous {
 public:
  explicit Contiguous(const TensorView& source) : view_(source) {
    if (source.strides() == contiguous_strides(source.shape())) return;
    copy_ = Tensor(source);
    view_ = copy_;
  }
  Contiguous(const Contiguous&) = delete;
  Contiguous& operator=(const Contiguous&) = delete;
  const TensorView& view() const { return view_; }

 private:
  Tensor copy_;
  TensorView view_;
};

}  // namespace fovea::engine
