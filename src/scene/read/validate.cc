// SPDX-License-Identifier: Apache-2.0
//
// Checks that the parts of a scene are consistent (fovea/scene.h). The parser reports errors in
// files with their location; these checks protect the trace from scenes built or modified in code.

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "fovea/error.h"
#include "fovea/scene.h"

#include "scene/read/scene_parts.h"

namespace fovea::scene {
namespace {

void require(bool condition, const std::string& message) {
  if (!condition) throw InvalidArgument("scene: " + message);
}

void validate_rows(const Tensor& rows, std::size_t batch, const Sequence& sequence,
                   std::string_view name) {
  const Shape expected{static_cast<std::int64_t>(batch), sequence.length(), 0};
  require(rows.defined() && rows.dtype() == DType::kFloat64 && rows.rank() == 3 &&
              std::equal(expected.begin(), expected.begin() + 2, rows.shape().begin()) &&
              rows.extent(2) > 0,
          fmt::format("expected float64 {} [{}, {}, dim], got {}", name, batch, sequence.length(),
                      rows.defined() ? to_string(rows.shape()) : "none"));
}

void validate_sequence(const Sequence& sequence, std::size_t batch, bool embedded,
                       const char* name) {
  require(!sequence.tokens.empty() && !sequence.tokens.front().empty(),
          fmt::format("expected at least one token in {}, got none", name));
  require(sequence.tokens.size() == batch, fmt::format("expected {} batch items in {}, got {}",
                                                       batch, name, sequence.tokens.size()));
  for (const auto& item : sequence.tokens) {
    require(static_cast<std::int64_t>(item.size()) == sequence.length(),
            fmt::format("expected {} tokens in every batch item of {}, got {}", sequence.length(),
                        name, item.size()));
  }
  if (embedded) {
    validate_rows(sequence.embeddings, batch, sequence, fmt::format("embeddings of the {}", name));
  }
}

void validate_columns(std::int64_t columns, std::int64_t heads, const char* name) {
  require(columns > 0 && columns % heads == 0,
          fmt::format("expected {} columns that {} heads can share, got {}", name, heads, columns));
}

void validate_projection(const Tensor& weights, std::int64_t rows, const char* name) {
  require(weights.defined() && weights.dtype() == DType::kFloat64 && weights.rank() == 2 &&
              weights.extent(0) == rows,
          fmt::format("expected float64 {} weights [{}, columns], got {}", name, rows,
                      weights.defined() ? to_string(weights.shape()) : "none"));
}

/// Checks the direct inputs, or the projections, or the embeddings.
void validate_inputs(const Scene& scene, std::size_t batch) {
  if (scene.direct) {
    require(!scene.projections, "expected no projections beside direct queries, keys and values");
    const Sequence& source = scene.source ? *scene.source : scene.words;
    validate_rows(scene.direct->query, batch, scene.words, "queries");
    validate_rows(scene.direct->key, batch, source, "keys");
    validate_rows(scene.direct->value, batch, source, "values");
  } else if (scene.projections) {
    const std::int64_t dim = scene.words.embeddings.extent(2);
    const std::int64_t source_dim = scene.source ? scene.source->embeddings.extent(2) : dim;
    validate_projection(scene.projections->query, dim, "query");
    validate_projection(scene.projections->key, source_dim, "key");
    validate_projection(scene.projections->value, source_dim, "value");
  }
  validate_columns(query_columns(scene), scene.heads, "query");
  validate_columns(key_columns(scene), scene.kv_heads, "key");
  validate_columns(value_columns(scene), scene.kv_heads, "value");
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
  validate_sequence(scene.words, batch, !scene.direct, "words");
  if (scene.source) validate_sequence(*scene.source, batch, !scene.direct, "source");
  require(scene.batched || batch == 1,
          fmt::format("expected batched to be true with {} batch items", batch));

  require(scene.heads > 0 && scene.kv_heads > 0 && scene.heads % scene.kv_heads == 0,
          fmt::format("expected heads to be a positive multiple of kv_heads, got {} and {}",
                      scene.heads, scene.kv_heads));
  validate_inputs(scene, batch);

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
