// SPDX-License-Identifier: Apache-2.0
//
// Checks that the parts of a scene are consistent (fovea/scene.h). The parser reports errors in
// files with their location; these checks protect the trace from scenes built or modified in code.

#include <algorithm>

#include <fmt/format.h>

#include "fovea/error.h"
#include "fovea/scene.h"

namespace fovea::scene {
namespace {

void require(bool condition, const std::string& message) {
  if (!condition) throw InvalidArgument("scene: " + message);
}

void validate_sequence(const Sequence& sequence, std::size_t batch, const char* name) {
  require(!sequence.tokens.empty() && !sequence.tokens.front().empty(),
          fmt::format("expected at least one token in {}, got none", name));
  require(sequence.tokens.size() == batch, fmt::format("expected {} batch items in {}, got {}",
                                                       batch, name, sequence.tokens.size()));
  for (const auto& item : sequence.tokens) {
    require(static_cast<std::int64_t>(item.size()) == sequence.length(),
            fmt::format("expected {} tokens in every batch item of {}, got {}", sequence.length(),
                        name, item.size()));
  }
  const Tensor& embeddings = sequence.embeddings;
  const Shape expected{static_cast<std::int64_t>(batch), sequence.length(), 0};
  require(embeddings.defined() && embeddings.dtype() == DType::kFloat64 && embeddings.rank() == 3 &&
              std::equal(expected.begin(), expected.begin() + 2, embeddings.shape().begin()) &&
              embeddings.extent(2) > 0,
          fmt::format("expected float64 embeddings [{}, {}, dim] in {}, got {}", batch,
                      sequence.length(), name,
                      embeddings.defined() ? to_string(embeddings.shape()) : "none"));
}

void validate_columns(std::int64_t columns, std::int64_t heads, const char* name) {
  require(
      columns > 0 && columns % heads == 0,
      fmt::format("expected columns in {} that {} heads can share, got {}", name, heads, columns));
}

void validate_projection(const Tensor& weights, std::int64_t rows, std::int64_t heads,
                         const char* name) {
  require(weights.defined() && weights.dtype() == DType::kFloat64 && weights.rank() == 2 &&
              weights.extent(0) == rows,
          fmt::format("expected float64 {} weights [{}, columns], got {}", name, rows,
                      weights.defined() ? to_string(weights.shape()) : "none"));
  validate_columns(weights.extent(1), heads, name);
}

void validate_wish(const Scene& scene, const Wish& wish) {
  const auto batch = static_cast<std::int64_t>(scene.words.tokens.size());
  const std::int64_t keys = (scene.source ? *scene.source : scene.words).length();
  const auto within = [](std::int64_t index, std::int64_t count) {
    return index >= 0 && index < count;
  };
  require(within(wish.item, batch) && within(wish.query, scene.words.length()) &&
              within(wish.key, keys),
          fmt::format("expected a wish within {} batch items of {} queries and {} keys, got item "
                      "{}, query {}, key {}",
                      batch, scene.words.length(), keys, wish.item, wish.query, wish.key));
  require(wish.weight >= 0.0 && wish.weight <= 1.0,
          fmt::format("expected a wish for a weight from 0 to 1, got {}", wish.weight));
}

}  // namespace

void validate(const Scene& scene) {
  const std::size_t batch = scene.words.tokens.size();
  validate_sequence(scene.words, batch, "words");
  if (scene.source) validate_sequence(*scene.source, batch, "source");
  require(scene.batched || batch == 1,
          fmt::format("expected batched to be true with {} batch items", batch));

  require(scene.heads > 0 && scene.kv_heads > 0 && scene.heads % scene.kv_heads == 0,
          fmt::format("expected heads to be a positive multiple of kv_heads, got {} and {}",
                      scene.heads, scene.kv_heads));
  const std::int64_t dim = scene.words.embeddings.extent(2);
  const std::int64_t source_dim = scene.source ? scene.source->embeddings.extent(2) : dim;
  if (scene.projections) {
    validate_projection(scene.projections->query, dim, scene.heads, "query");
    validate_projection(scene.projections->key, source_dim, scene.kv_heads, "key");
    validate_projection(scene.projections->value, source_dim, scene.kv_heads, "value");
  } else {
    validate_columns(dim, scene.heads, "embeddings");
    validate_columns(source_dim, scene.kv_heads, "source embeddings");
  }

  require(!scene.normalizations.empty(), "expected at least one normalization, got none");
  require(scene.precision >= 0 && scene.precision <= kMaxDecimals,
          fmt::format("expected a precision from 0 to {}, got {}", kMaxDecimals, scene.precision));
  if (scene.focus) {
    require(scene.focus->item >= 0 && scene.focus->item < static_cast<std::int64_t>(batch) &&
                scene.focus->index >= 0 && scene.focus->index < scene.words.length(),
            fmt::format("expected a focus within {} batch items of {} tokens, got [{}, {}]", batch,
                        scene.words.length(), scene.focus->item, scene.focus->index));
  }
  for (const Wish& wish : scene.learn) validate_wish(scene, wish);
}

}  // namespace fovea::scene
