// SPDX-License-Identifier: Apache-2.0
//
// The parts of the scene parser, each a function from JSON to one part of a Scene.
// docs/scene.md is the same in words; docs/scene.schema.json the same for editors, and a test keeps
// the three together.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fovea/attention_options.h"
#include "fovea/random.h"
#include "fovea/scene.h"

#include "json/json_reader.h"

namespace fovea::scene {

inline constexpr std::int64_t kMaxDim = 4096;
inline constexpr std::int64_t kMaxScores = std::int64_t{1} << 22;
inline constexpr std::int64_t kMaxNumbers = std::int64_t{1} << 22;  // of one drawn array
inline constexpr std::int64_t kMaxProducts = std::int64_t{1} << 30;
inline constexpr std::int64_t kMaxHidden = std::int64_t{1} << 24;

/// Draws random arrays from the scene's one stream, which begins with the first drawing.
class Drawer {
 public:
  explicit Drawer(std::optional<std::int64_t> seed) : seed_(seed) {}

  /// The keys of a drawing.
  static const std::vector<std::string>& keys();

  /// Draws an array as `node` says; `drawn` receives the call in words.
  Tensor draw(const JsonNode& node, const Shape& shape, std::string* drawn = nullptr);

  /// A matrix of `rows` rows, given or drawn; `rows_are` says what the rows stand for.
  Tensor matrix(const JsonNode& node, std::int64_t rows, const std::string& rows_are,
                std::int64_t default_columns, std::string* drawn = nullptr);

  /// A list of numbers, given or drawn.
  Tensor vector(const JsonNode& node, std::int64_t default_length);

 private:
  RandomState& stream(const JsonNode& drawing);

  std::optional<std::int64_t> seed_;
  std::optional<RandomState> stream_;
};

/// A number of columns, as "dim" and its like give it.
std::optional<std::int64_t> parse_dim(const JsonNode& node, const char* key);

/// What a score compares.
struct ScoreShape {
  ProblemShape problem;
  std::int64_t head_dim = 0;
  std::int64_t key_dim = 0;
  std::string key_place;   ///< where the key's width was decided, for messages
  std::string query_name;  ///< what decided the query's, and its shape
};

/// Fills the scene's score kind, scale and score options. `node` is "score", if given.
void parse_score(const std::optional<JsonNode>& node, const ScoreShape& shape, Drawer& drawer,
                 Scene& scene);

Expectation parse_expectation(const JsonNode& node);
/// Of a scene whose words are there.
std::vector<Wish> parse_learn(const JsonNode& node, const Scene& scene);

}  // namespace fovea::scene
