// SPDX-License-Identifier: Apache-2.0
//
// Parses JSON into a Scene (scene_parser.h). Every key is checked, shapes are checked against each
// other, and all random numbers come from one stream.

#include "scene/read/scene_parser.h"

#include <algorithm>

#include <fmt/format.h>

#include "fovea/error.h"
#include "fovea/scene.h"

#include "io/file_io.h"
#include "json/mask_json.h"
#include "scene/read/scene_parts.h"
#include "scene/read/step_catalogue.h"
#include "text/nearest.h"
#include "text/text_width.h"

namespace fovea::scene {
namespace {

constexpr std::int64_t kMaxBatch = 64;

class SceneParser {
 public:
  explicit SceneParser(JsonNode root) : root_(std::move(root)) {}

  Scene parse() {
    root_.require_object({"$schema", "title",     "tokens",      "text",           "embeddings",
                          "source",  "seed",      "projections", "heads",          "kv_heads",
                          "score",   "mask",      "alignment",   "normalizations", "focus",
                          "dtype",   "precision", "notes",       "expect",         "learn"});
    if (const auto schema = root_.find("$schema")) schema->string();
    const auto title = root_.find("title");
    scene_.title = title ? title->string() : "Untitled scene";
    const auto seed = root_.find("seed");
    drawer_ = Drawer(seed ? std::optional(seed->integer(0, 0xFFFFFFFFLL)) : std::nullopt);

    // The order of these calls determines the order of draws from the random stream.
    scene_.words = parse_sequence(root_, &scene_.batched);
    parse_source();
    parse_heads();
    parse_projections();
    check_sizes();
    parse_score(root_.find("score"), score_shape(), drawer_, scene_);
    if (const auto alignment = root_.find("alignment")) {
      scene_.options.alignment = parse_alignment(*alignment, problem_shape());
    }
    if (const auto mask = root_.find("mask")) {
      scene_.options.mask = parse_mask(*mask, problem_shape(), kMaxTokens);
    }
    parse_presentation();
    return std::move(scene_);
  }

 private:
  // ---- Tokens and embeddings -------------------------------------------------------------------

  /// Parses "tokens" or "text", and "embeddings", of the scene or its source.
  Sequence parse_sequence(const JsonNode& node, bool* batched) {
    Sequence sequence;
    const auto tokens = node.find("tokens");
    const auto text = node.find("text");
    if (tokens && text) text->fail("expected either \"tokens\" or \"text\", got both");
    if (!tokens && !text) node.fail("expected \"tokens\" or \"text\", got neither");
    if (text) {
      sequence.tokens = {split_words(text->string())};
      if (sequence.tokens[0].empty()) text->fail("expected at least one word, got none");
    } else {
      parse_tokens(*tokens, sequence, batched);
    }
    const JsonNode& words = tokens ? *tokens : *text;
    if (sequence.length() > kMaxTokens) {
      words.fail(fmt::format("expected at most {} tokens, got {}", kMaxTokens, sequence.length()));
    }
    const auto embeddings = node.find("embeddings");
    if (!embeddings) node.fail("expected \"embeddings\", got none");
    parse_embeddings(*embeddings, sequence, batched);
    return sequence;
  }

  static void parse_tokens(const JsonNode& node, Sequence& sequence, bool* batched) {
    const auto items = node.array("an array of tokens");
    if (items.empty()) node.fail("expected at least one token, got none");
    if (!items[0].is_array()) {
      sequence.tokens.push_back(parse_token_list(node, sequence));
      return;
    }
    *batched = true;
    if (static_cast<std::int64_t>(items.size()) > kMaxBatch) {
      node.fail(fmt::format("expected at most {} batch items, got {}", kMaxBatch, items.size()));
    }
    for (const JsonNode& item : items) {
      sequence.tokens.push_back(parse_token_list(item, sequence));
      const std::size_t length = sequence.tokens.front().size();
      if (sequence.tokens.back().size() != length) {
        item.fail(
            fmt::format("expected {} tokens, as the first item has, got {}; fill up with tokens "
                        "of your own and hide them with mask.key_lengths",
                        length, sequence.tokens.back().size()));
      }
    }
  }

  static std::vector<std::string> parse_token_list(const JsonNode& node, Sequence& sequence) {
    std::vector<std::string> tokens;
    for (const JsonNode& item : node.array("an array of tokens")) {
      const bool first = sequence.tokens.empty() && tokens.empty();
      if (first) sequence.numeric = item.is_integer();
      if (sequence.numeric) {
        if (!item.is_integer()) item.expected("a whole number, as the first token is");
        tokens.push_back(fmt::format("{}", item.integer(INT64_MIN, INT64_MAX)));
      } else {
        if (!item.is_string()) item.expected(first ? "a string or a whole number" : "a string");
        if (item.string().empty()) item.fail("expected a word, got an empty string");
        tokens.push_back(item.string());
      }
    }
    if (tokens.empty()) node.fail("expected at least one token, got none");
    return tokens;
  }

  void parse_embeddings(const JsonNode& node, Sequence& sequence, bool* batched) {
    const auto batch = static_cast<std::int64_t>(sequence.tokens.size());
    const std::int64_t length = sequence.length();
    if (node.is_object()) {
      node.require_object(Drawer::keys());
      const auto dim = parse_dim(node, "dim");
      if (!dim) node.fail("expected a key \"dim\", the numbers per word, got none");
      sequence.embeddings = drawer_.draw(node, {batch, length, *dim}, &sequence.drawn);
      return;
    }
    Tensor given = node.numbers(2, 3);
    if (given.rank() == 3 && batch == 1) *batched = true;
    const bool rank_fits = given.rank() == (*batched ? 3 : 2);
    const std::int64_t rows = given.extent(given.rank() - 2);
    if (!rank_fits || (*batched && given.extent(0) != batch) || rows != length) {
      node.fail(fmt::format("expected {} rows, one per token{}, got {}", length,
                            *batched ? fmt::format(", in each of {} batch items", batch) : "",
                            to_string(given.shape())));
    }
    const std::int64_t dim = given.extent(given.rank() - 1);
    if (dim < 1 || dim > kMaxDim) {
      node.fail(fmt::format("expected rows of 1 to {} numbers, got {}", kMaxDim, dim));
    }
    sequence.embeddings = std::move(given).reshaped({batch, length, dim});
  }

  void parse_source() {
    const auto source = root_.find("source");
    if (!source) return;
    source->require_object({"tokens", "text", "embeddings"});
    bool batched = false;
    scene_.source = parse_sequence(*source, &batched);
    if (scene_.source->tokens.size() != scene_.words.tokens.size()) {
      source->fail(
          fmt::format("expected as many batch items as the scene's tokens have, {}, got {}",
                      scene_.words.tokens.size(), scene_.source->tokens.size()));
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
      projections.query = drawer_.draw(*node, {dim(), columns}, &projections.query_drawn);
      projections.key = drawer_.draw(*node, {source_dim(), kv_columns}, &projections.key_drawn);
      projections.value =
          drawer_.draw(*node, {source_dim(), value_columns}, &projections.value_drawn);
    } else {
      refuse({"low", "high", "dim", "value_dim"},
             "expected a key \"draw\" beside this one, got none");
      const auto part = [&](const char* name, std::int64_t row_count, const std::string& rows_are,
                            std::string* how) {
        const auto given = node->find(name);
        if (!given) node->fail(fmt::format("expected a key \"{}\", got none", name));
        return drawer_.matrix(*given, row_count, rows_are, dim(), how);
      };
      projections.query = part("query", dim(), rows, &projections.query_drawn);
      projections.key = part("key", source_dim(), source_rows, &projections.key_drawn);
      projections.value = part("value", source_dim(), source_rows, &projections.value_drawn);
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

  std::int64_t head_dim() const {
    return (scene_.projections ? scene_.projections->query.extent(1) : dim()) / scene_.heads;
  }
  std::int64_t key_dim() const {
    return (scene_.projections ? scene_.projections->key.extent(1) : source_dim()) /
           scene_.kv_heads;
  }

  ScoreShape score_shape() const {
    ScoreShape shape{problem_shape(), head_dim(), key_dim(), "projections.key", {}};
    if (scene_.projections) {
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

  std::int64_t value_dim() const {
    return (scene_.projections ? scene_.projections->value.extent(1) : source_dim()) /
           scene_.kv_heads;
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

  // ---- Presentation and expectations -----------------------------------------------------------

  void parse_presentation() {
    parse_normalizations();
    if (const auto dtype = root_.find("dtype")) {
      scene_.arithmetic =
          dtype->choice({"float64", "float32"}) == 0 ? DType::kFloat64 : DType::kFloat32;
    }
    if (const auto precision = root_.find("precision")) {
      scene_.precision = static_cast<int>(precision->integer(0, kMaxDecimals));
    }
    parse_focus();
    if (const auto notes = root_.find("notes")) {
      std::vector<std::string> names = all_step_names();
      names.push_back("scene");
      for (const auto& [name, note] : notes->members()) {
        if (std::find(names.begin(), names.end(), name) == names.end()) {
          note.fail(fmt::format("expected the name of a step, or \"scene\", got \"{}\"{}",
                                visible(name), did_you_mean(name, names)));
        }
        scene_.notes.emplace_back(name, note.string());
      }
    }
    if (const auto expect = root_.find("expect")) {
      for (const JsonNode& item : expect->array("an array of expectations")) {
        scene_.expect.push_back(parse_expectation(item));
      }
    }
    if (const auto learn = root_.find("learn")) scene_.learn = parse_learn(*learn, scene_);
  }

  void parse_normalizations() {
    const auto node = root_.find("normalizations");
    if (node) {
      for (const JsonNode& item : node->array("an array of normalizations")) {
        const auto kind = static_cast<reference::Normalization>(item.choice(normalization_names()));
        const auto& given = scene_.normalizations;
        if (std::find(given.begin(), given.end(), kind) != given.end()) {
          item.fail(fmt::format("expected each normalization once, got \"{}\" again",
                                normalization_name(kind)));
        }
        if (kind == reference::Normalization::kSum && !scene_.options.score.sinks.empty()) {
          item.fail("expected no division by the sum beside sinks: a sink is a logit");
        }
        scene_.normalizations.push_back(kind);
      }
      if (scene_.normalizations.empty()) node->fail("expected at least one, got none");
    } else {
      scene_.normalizations = {reference::Normalization::kSoftmax};
    }
  }

  void parse_focus() {
    const auto node = root_.find("focus");
    scene_.focus = Focus{};
    if (!node) return;
    const std::int64_t last = scene_.words.length() - 1;
    if (node->is_null()) {
      scene_.focus.reset();
    } else if (node->is_string()) {
      try {
        scene_.focus = find_word(scene_, node->string());
      } catch (const InvalidArgument& error) {
        node->fail(error.what());
      }
    } else if (node->is_array()) {
      const auto batch = static_cast<std::int64_t>(scene_.words.tokens.size());
      const auto pair = node->array();
      if (pair.size() != 2) node->expected("[batch item, token]");
      scene_.focus = Focus{pair[0].integer(0, batch - 1), pair[1].integer(0, last)};
    } else {
      if (!node->is_integer()) node->expected("a word, its index, [batch item, token], or null");
      scene_.focus = Focus{0, node->integer(0, last)};
    }
  }

  JsonNode root_;
  Scene scene_;
  Drawer drawer_{std::nullopt};
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
