// SPDX-License-Identifier: Apache-2.0
//
// Parses JSON into a Scene (scene_parser.h). Every key is checked, shapes are checked against each
// other, and all random numbers come from one stream.

#include "scene/read/scene_parser.h"

#include <fmt/format.h>

#include "fovea/error.h"
#include "fovea/scene.h"

#include "io/file_io.h"
#include "json/mask_json.h"
#include "scene/read/scene_parts.h"
#include "text/text_width.h"

namespace fovea::scene {
namespace {

class SceneParser {
 public:
  explicit SceneParser(JsonNode root) : root_(std::move(root)) {}

  Scene parse() {
    root_.require_object({"$schema",   "title",       "tokens",         "text",      "embeddings",
                          "query",     "key",         "value",          "source",    "seed",
                          "order",     "projections", "heads",          "kv_heads",  "score",
                          "mask",      "alignment",   "normalizations", "focus",     "dtype",
                          "precision", "notes",       "expect",         "questions", "learn"});
    if (const auto schema = root_.find("$schema")) schema->string();
    const auto title = root_.find("title");
    scene_.title = title ? title->string() : "Untitled scene";
    drawer_.emplace(root_);
    parse_inputs();
    parse_heads();
    parse_projections();
    check_sizes();
    parse_score(root_.find("score"), score_shape(), *drawer_, scene_);
    drawer_->fill();
    if (const auto alignment = root_.find("alignment")) {
      scene_.options.alignment = parse_alignment(*alignment, problem_shape());
    }
    if (const auto mask = root_.find("mask")) {
      scene_.options.mask = parse_mask(*mask, problem_shape(), kMaxTokens);
    }
    parse_presentation(root_, scene_);
    if (const auto learn = root_.find("learn")) {
      if (scene_.direct) {
        learn->fail("expected embeddings, whose projections are trained, got \"query\"");
      }
      scene_.learn = parse_learn(*learn, scene_);
    }
    return std::move(scene_);
  }

 private:
  // ---- Words, and their embeddings or queries, keys and values --------------------------------

  void parse_inputs() {
    parse_words(root_, Drawn::kTokens, *drawer_, scene_.words, scene_.batched);
    const bool direct = root_.find("query") || root_.find("key") || root_.find("value");
    if (!direct) embed(root_, Drawn::kEmbeddings, scene_.words, scene_.batched);
    if (const auto source = root_.find("source")) {
      source->require_object({"tokens", "text", "embeddings"});
      bool batched = false;
      parse_words(*source, Drawn::kSource, *drawer_, scene_.source.emplace(), batched);
      if (!direct) embed(*source, Drawn::kSource, *scene_.source, batched);
      if (scene_.source->tokens.size() != scene_.words.tokens.size()) {
        source->fail(
            fmt::format("expected as many batch items as the scene's tokens have, {}, got {}",
                        scene_.words.tokens.size(), scene_.source->tokens.size()));
      }
    }
    if (!direct) return;
    for (const char* other : {"embeddings", "projections"}) refuse_beside_direct(root_, other);
    if (const auto source = root_.find("source")) refuse_beside_direct(*source, "embeddings");
    scene_.direct = parse_direct(root_, *drawer_, scene_);
  }

  void embed(const JsonNode& node, Drawn array, Sequence& sequence, bool& batched) {
    const auto embeddings = node.find("embeddings");
    if (!embeddings) node.fail("expected \"embeddings\", got none");
    parse_embeddings(*embeddings, array, *drawer_, sequence, batched);
  }

  static void refuse_beside_direct(const JsonNode& node, const char* key) {
    if (const auto given = node.find(key)) {
      given->fail(
          fmt::format("expected either \"{}\" or \"query\", \"key\" and \"value\", got both", key));
    }
  }

  // ---- Projections -----------------------------------------------------------------------------

  std::int64_t dim() const { return scene_.words.embeddings.extent(2); }
  std::int64_t source_dim() const {
    return scene_.source ? scene_.source->embeddings.extent(2) : dim();
  }

  void parse_heads() {
    if (const auto heads = root_.find("heads")) scene_.heads = heads->integer(1, kMaxDim);
    scene_.kv_heads = scene_.heads;
    if (const auto kv_heads = root_.find("kv_heads")) {
      scene_.kv_heads = kv_heads->integer(1, kMaxDim);
      if (scene_.heads % scene_.kv_heads != 0) {
        kv_heads->fail(
            fmt::format("expected a divisor of heads = {}, got {}", scene_.heads, scene_.kv_heads));
      }
    }
  }

  void parse_projections() {
    if (scene_.direct) {
      check_heads("query", scene_.direct->query.extent(2), scene_.heads);
      check_heads("key", scene_.direct->key.extent(2), scene_.kv_heads);
      check_heads("value", scene_.direct->value.extent(2), scene_.kv_heads);
      return;
    }
    const auto node = root_.find("projections");
    if (!node || !node->is_object()) {
      if (node && !(node->is_string() && node->string() == "none")) {
        node->expected("\"none\" or an object");
      }
      check_heads("embeddings", dim(), scene_.heads);
      check_heads(scene_.source ? "source.embeddings" : "embeddings", source_dim(),
                  scene_.kv_heads);
      return;
    }
    Projections projections;
    const std::string rows = columns_of("embeddings", scene_.words.embeddings);
    const std::string source_rows =
        scene_.source ? columns_of("source.embeddings", scene_.source->embeddings) : rows;
    node->require_object({"query", "key", "value", "draw", "low", "high", "dim", "value_dim"});
    const bool drawn = node->find("draw").has_value();
    const auto refuse = [&](const std::vector<const char*>& keys, const char* why) {
      for (const char* key : keys) {
        if (const auto given = node->find(key)) given->fail(why);
      }
    };
    if (drawn) {
      refuse({"query", "key", "value"},
             "expected no matrix beside \"draw\", which makes all three");
      const std::int64_t columns = parse_dim(*node, "dim").value_or(dim());
      const std::int64_t kv_columns = columns / scene_.heads * scene_.kv_heads;
      const std::int64_t value_columns = parse_dim(*node, "value_dim").value_or(kv_columns);
      projections.query =
          drawer_->draw(*node, {dim(), columns}, Drawn::kQueryWeights, &projections.query_drawn);
      projections.key = drawer_->draw(*node, {source_dim(), kv_columns}, Drawn::kKeyWeights,
                                      &projections.key_drawn);
      projections.value = drawer_->draw(*node, {source_dim(), value_columns}, Drawn::kValueWeights,
                                        &projections.value_drawn);
    } else {
      refuse({"low", "high", "dim", "value_dim"},
             "expected a key \"draw\" beside this one, got none");
      const auto part = [&](const char* name, std::int64_t row_count, const std::string& rows_are,
                            Drawn array, std::string* how) {
        const auto given = node->find(name);
        if (!given) node->fail(fmt::format("expected a key \"{}\", got none", name));
        return drawer_->matrix(*given, row_count, rows_are, dim(), array, how);
      };
      projections.query =
          part("query", dim(), rows, Drawn::kQueryWeights, &projections.query_drawn);
      projections.key =
          part("key", source_dim(), source_rows, Drawn::kKeyWeights, &projections.key_drawn);
      projections.value =
          part("value", source_dim(), source_rows, Drawn::kValueWeights, &projections.value_drawn);
    }
    check_heads("projections.query", projections.query.extent(1), scene_.heads);
    check_heads("projections.key", projections.key.extent(1), scene_.kv_heads);
    check_heads("projections.value", projections.value.extent(1), scene_.kv_heads);
    scene_.projections = std::move(projections);
  }

  static void check_heads(const char* place, std::int64_t columns, std::int64_t heads) {
    if (columns < 1 || columns % heads != 0) {
      throw InvalidArgument(
          fmt::format("{}: expected a number of columns that {} heads can share, got {}", place,
                      heads, columns));
    }
  }

  std::int64_t head_dim() const { return query_columns(scene_) / scene_.heads; }
  std::int64_t key_dim() const { return key_columns(scene_) / scene_.kv_heads; }
  std::int64_t value_dim() const { return value_columns(scene_) / scene_.kv_heads; }

  ScoreShape score_shape() const {
    ScoreShape shape{problem_shape(), head_dim(), key_dim(), "projections.key", {}};
    if (scene_.direct) {
      shape.key_place = "key";
      shape.query_name = "query " + matrix_shape(scene_.direct->query);
    } else if (scene_.projections) {
      shape.query_name = "projections.query " + to_string(scene_.projections->query.shape());
    } else {
      shape.key_place = scene_.source ? "source.embeddings" : "kv_heads";
      shape.query_name = "embeddings " + matrix_shape(scene_.words.embeddings);
    }
    return shape;
  }

  /// Returns the shape of the embeddings as in the file, without the batch dimension.
  static std::string matrix_shape(const Tensor& embeddings) {
    return to_string(Shape{embeddings.extent(1), embeddings.extent(2)});
  }

  static std::string columns_of(const char* name, const Tensor& embeddings) {
    return fmt::format("one per column of {} {}", name, matrix_shape(embeddings));
  }

  ProblemShape problem_shape() const {
    const Sequence& source = scene_.source ? *scene_.source : scene_.words;
    return {static_cast<std::int64_t>(scene_.words.tokens.size()), scene_.heads, scene_.kv_heads,
            scene_.words.length(), source.length()};
  }

  /// Limits the cost of a scene: every step is computed and stored.
  void check_sizes() const {
    const ProblemShape p = problem_shape();
    const std::int64_t scores = p.batch * p.q_heads * p.q_len * p.kv_len;
    if (scores > kMaxScores) {
      root_.fail(fmt::format(
          "expected at most {} scores (batch * heads * queries * keys), since every step is kept, "
          "got {}",
          kMaxScores, scores));
    }
    std::int64_t products = scores * (head_dim() + value_dim());
    if (scene_.projections) {
      const Projections& w = *scene_.projections;
      products += p.batch * (p.q_len * w.query.size() + p.kv_len * (w.key.size() + w.value.size()));
    }
    if (products > kMaxProducts) {
      root_.fail(fmt::format(
          "expected at most {} products in all matrix products together, got {}: fewer tokens, or "
          "narrower embeddings or projections",
          kMaxProducts, products));
    }
  }

  JsonNode root_;
  Scene scene_;
  std::optional<Drawer> drawer_;
};

}  // namespace

Scene parse_scene(std::string_view text) {
  if (static_cast<std::int64_t>(text.size()) > kMaxFileBytes) {
    throw InvalidArgument(
        fmt::format("scene: expected at most {} bytes, since every step is kept and shown, got {}",
                    kMaxFileBytes, text.size()));
  }
  const JsonDocument document = parse_json(text);
  Scene scene = SceneParser(document.root()).parse();
  scene.json = std::string(text);
  return scene;
}

Scene load_scene(const std::string& path) {
  const std::string text = read_file(path, kMaxFileBytes);
  try {
    return parse_scene(text);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(visible(path) + ": " + error.what());
  }
}

}  // namespace fovea::scene
