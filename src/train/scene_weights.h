// SPDX-License-Identifier: Apache-2.0
//
// A scene's weights as a function of its query and key projections, with gradients.

#pragma once

#include "fovea/nn/parameters.h"
#include "fovea/scene.h"
#include "fovea/tensor.h"

namespace fovea::train {

class SceneWeights {
 public:
  /// Keeps a reference to the scene.
  explicit SceneWeights(const scene::Scene& scene) : scene_(scene) {}

  struct Found {
    Tensor weights;  // [batch, heads, queries, keys], in the scene's arithmetic
    Tensor visible;
  };
  /// Returns the weights that trace_scene() would show with these projections [dim, columns].
  Found forward(const TensorView& query, const TensorView& key) const;

  /// Adds the gradients of the loss to the parameters' gradients. `gradient` is the gradient of the
  /// weights. Computes in float64, regardless of the scene's arithmetic.
  void backward(const TensorView& gradient, nn::Parameter& query, nn::Parameter& key) const;

 private:
  const scene::Sequence& source() const { return scene_.source ? *scene_.source : scene_.words; }

  const scene::Scene& scene_;
};

}  // namespace fovea::train
