// SPDX-License-Identifier: Apache-2.0
//
// What is learned: named tensors, each with the gradient that backward passes gather.

#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea::nn {

/// A tensor that is learned, and the gradient of the loss with respect to it, of the same shape and
/// type. Backward passes add to the gradient; Parameters::zero_gradients() starts it over.
struct Parameter {
  std::string name;  ///< as PyTorch's modules name it: "decoder.layers.0.linear1.weight"
  Tensor value;
  Tensor gradient;
};

/// All of a model, in the order in which its layers made them.
class FOVEA_API Parameters {
 public:
  /// float32; or float64, which computes slowly, to be compared with finite differences. Throws
  /// InvalidArgument for another type.
  explicit Parameters(DType dtype = DType::kFloat32);

  DType dtype() const { return dtype_; }
  /// Zeros, which stay where they are. Throws InvalidArgument for a name that is taken.
  Parameter& add(std::string name, const Shape& shape);
  /// Null for a name that is not there.
  Parameter* find(std::string_view name);
  const Parameter* find(std::string_view name) const;

  auto begin() { return all_.begin(); }
  auto end() { return all_.end(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  /// How many numbers they are.
  std::int64_t count() const;
  void zero_gradients();

 private:
  DType dtype_;
  std::deque<Parameter> all_;  // whose elements stay where they are
};

}  // namespace fovea::nn
