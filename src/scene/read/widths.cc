// SPDX-License-Identifier: Apache-2.0
//
// The widths of queries, keys and values (scene_parts.h): of the direct inputs, else of the
// projections, else of the embeddings.

#include <cmath>
#include <cstdint>

#include "scene/read/scene_parts.h"

namespace fovea::scene {

std::int64_t query_columns(const Scene& scene) {
  if (scene.direct) return scene.direct->query.extent(2);
  return scene.projections ? scene.projections->query.extent(1) : scene.words.embeddings.extent(2);
}

std::int64_t key_columns(const Scene& scene) {
  if (scene.direct) return scene.direct->key.extent(2);
  if (scene.projections) return scene.projections->key.extent(1);
  return (scene.source ? *scene.source : scene.words).embeddings.extent(2);
}

std::int64_t value_columns(const Scene& scene) {
  if (scene.direct) return scene.direct->value.extent(2);
  return scene.projections ? scene.projections->value.extent(1) : key_columns(scene);
}

double score_scale(const Scene& scene) {
  const auto head_dim = static_cast<double>(query_columns(scene) / scene.heads);
  return scene.options.score.scale.value_or(1.0 / std::sqrt(head_dim));
}

}  // namespace fovea::scene
