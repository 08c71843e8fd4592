// SPDX-License-Identifier: Apache-2.0
//
// The parts of the scene parser. Each function converts JSON to one part of a Scene. docs/scene.md
// documents the format, docs/scene.schema.json is its schema for editors, and a test checks that
// the three agree.

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
inline constexpr std::int64_t kMaxNumbers = std::int64_t{1} << 22;  // per drawn array
inline constexpr std::int64_t kMaxProducts = std::int64_t{1} << 30;
inline constexpr std::int64_t kMaxHidden = std::int64_t{1} << 24;

/// Draws random arrays from the single random stream of a scene. The first draw seeds the stream.
class Drawer {
 public:
  explicit Drawer(std::optional<std::int64_t> seed) : seed_(seed) {}

  /// Returns the keys of a JSON object that describes a draw.
  static const std::vector<std::string>& keys();

  /// Draws an array as `node` describes. If `drawn` is not null, a description of the draw is
  /// stored in `*drawn`.
  Tensor draw(const JsonNode& node, const Shape& shape, std::string* drawn = nullptr);

  /// Reads or draws a matrix of `rows` rows. `rows_are` is the description of the rows in messages.
  Tensor matrix(const JsonNode& node, std::int64_t rows, const std::string& rows_are,
                std::int64_t default_columns, std::string* drawn = nullptr);

  /// Reads or draws a vector.
  Tensor vector(const JsonNode& node, std::int64_t default_length);

 private:
  RandomState& stream(const JsonNode& drawing);

  std::optional<std::int64_t> seed_;
  std::optional<RandomState> stream_;
};

/// Returns the number of columns under a key such as "dim", if present.
std::optional<std::int64_t> parse_dim(const JsonNode& node, const char* key);

/// Shapes of the queries and keys that a score compares.
struct ScoreShape {
  ProblemShape problem;
  std::int64_t head_dim = 0;
  std::int64_t key_dim = 0;
  std::string key_place;   ///< path of the value that determines `key_dim`, for messages
  std::string query_name;  ///< name and shape of the matrix that determines `head_dim`
};

/// Sets the scene's score kind, scale and score options. `node` is "score", if present.
void parse_score(const std::optional<JsonNode>& node, const ScoreShape& shape, Drawer& drawer,
                 Scene& scene);

Expectation parse_expectation(const JsonNode& node);
/// Parses "learn". The words of `scene` must have been parsed.
std::vector<Wish> parse_learn(const JsonNode& node, const Scene& scene);

}  // namespace fovea::scene
