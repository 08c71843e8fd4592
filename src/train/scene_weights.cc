// SPDX-License-Identifier: Apache-2.0
//
// A scene's weights and the gradients of its projections (scene_weights.h). With query = X W, the
// gradient is dW = X^T dquery.

#include "train/scene_weights.h"

#include <cstdint>

#include "fovea/reference.h"

#include "scene/trace/heads.h"

namespace fovea::train {
namespace {

using scene::split_heads;

/// Computes sum += rows^T gradient: rows [batch, length, dim], gradient [batch, heads, length,
/// head_dim], sum [dim, heads * head_dim].
void add_product(const Tensor& rows, const Tensor& gradient, Tensor& sum) {
  const std::int64_t head_dim = gradient.extent(3);
  for_each_index(gradient.shape(), [&](const Index& at) {
    const double of = gradient.at<double>(at);
    if (of == 0.0) return;
    for (std::int64_t i = 0; i < rows.extent(2); ++i) {
      sum.at<double>({i, at[1] * head_dim + at[3]}) += rows.at<double>({at[0], at[2], i}) * of;
    }
  });
}

}  // namespace

SceneWeights::Found SceneWeights::forward(const TensorView& query, const TensorView& key) const {
  const DType dtype = scene_.arithmetic;
  const Tensor queries = reference::project(scene_.words.embeddings, query, dtype);
  const Tensor keys = reference::project(source().embeddings, key, dtype);
  const TensorView split_keys = split_heads(keys, scene_.kv_heads);
  // The weights do not depend on the values, so the keys are passed as values.
  reference::Steps steps = reference::attention_steps(
      {split_heads(queries, scene_.heads), split_keys, split_keys}, scene_.options,
      {scene_.score_kind, scene_.normalizations.back(), dtype});
  return {std::move(steps.weights), std::move(steps.visible)};
}

void SceneWeights::backward(const TensorView& gradient, nn::Parameter& query,
                            nn::Parameter& key) const {
  const Tensor queries = reference::project(scene_.words.embeddings, query.value);
  const Tensor keys = reference::project(source().embeddings, key.value);
  const TensorView split_keys = split_heads(keys, scene_.kv_heads);
  const reference::Gradients found =
      reference::attention_gradients({split_heads(queries, scene_.heads), split_keys, split_keys},
                                     {.weights = gradient}, scene_.options);
  add_product(scene_.words.embeddings, found.query, query.gradient);
  add_product(source().embeddings, found.key, key.gradient);
}

}  // namespace fovea::train
