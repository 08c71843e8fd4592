// SPDX-License-Identifier: Apache-2.0
//
// Learnable parameters: named tensors with the gradients that backward passes accumulate.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea::nn {

/// A learnable tensor, and the gradient of the loss with respect to it, of the same shape and type.
/// Backward passes add to the gradient; Parameters::zero_gradients() resets it.
struct Parameter {
  std::string name;  ///< as in PyTorch's modules: "decoder.layers.0.linear1.weight"
  Tensor value;
  Tensor gradient;
};

/// All parameters of a model, in the order of creation.
class FOVEA_API Parameters {
 public:
  /// `dtype` is float32 or float64; float64 is slow and meant for comparing gradients with finite
  /// differences. Throws InvalidArgument for other types.
  explicit Parameters(DType dtype = DType::kFloat32);

  DType dtype() const { return dtype_; }
  /// Adds a parameter of zeros. Its address stays valid. Throws InvalidArgument if the name is in
  /// use.
  Parameter& add(std::string name, const Shape& shape);
  /// Returns the parameter with this name, or null.
  Parameter* find(std::string_view name);
  const Parameter* find(std::string_view name) const;

  auto begin() { return all_.begin(); }
  auto end() { return all_.end(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  /// Returns the number of parameters.
  std::size_t size() const { return all_.size(); }
  /// Removes the last parameters, so that the first `size` ones remain. Invalidates references to
  /// those that are removed.
  void shrink(std::size_t size);
  /// Returns the total number of elements.
  std::int64_t count() const;
  void zero_gradients();

 private:
  DType dtype_;
  std::deque<Parameter> all_;  // a deque keeps element addresses valid
};

}  // namespace fovea::nn
