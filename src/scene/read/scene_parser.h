// SPDX-License-Identifier: Apache-2.0
//
// The parts of the scene parser. Each function converts JSON to one part of a Scene. docs/scene.md
// documents the format, docs/scene.schema.json is its schema for editors, and a test checks that
// the three agree.

#pragma once

#include <cstdint>
#include <functional>
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

/// The arrays of a scene that can be drawn, in the default order of draws.
enum class Drawn : std::uint8_t {
  kTokens,
  kEmbeddings,
  kSource,
  kQueryWeights,
  kKeyWeights,
  kValueWeights,
  kQuery,
  kKey,
  kValue,
  kScore,
};

/// Draws random arrays from the single random stream of a scene. The order of draws is known only
/// when the whole scene has been read, so arrays are returned with zeros and filled by fill().
/// Until then a returned tensor may be moved but not copied, and a sequence may be neither.
class Drawer {
 public:
  /// Reads the "seed" and "order" of a scene.
  explicit Drawer(const JsonNode& scene);

  /// Returns the keys of a JSON object that describes a draw.
  static const std::vector<std::string>& keys();

  /// Draws an array as `node` describes. If `drawn` is not null, a description of the draw is
  /// stored in `*drawn`.
  Tensor draw(const JsonNode& node, const Shape& shape, Drawn array, std::string* drawn = nullptr);

  /// Draws embeddings of `dim` numbers per token. The numbers of each word come from a stream of
  /// its own.
  void draw_by_word(const JsonNode& node, std::int64_t dim, Sequence& sequence);

  /// Draws token ids. Sets the number of tokens at once.
  void draw_tokens(const JsonNode& node, Drawn array, Sequence& sequence);

  /// Reads or draws a matrix of `rows` rows. `rows_are` is the description of the rows in messages.
  Tensor matrix(const JsonNode& node, std::int64_t rows, const std::string& rows_are,
                std::int64_t default_columns, Drawn array, std::string* drawn = nullptr);

  /// Reads or draws a vector of the score.
  Tensor vector(const JsonNode& node, std::int64_t default_length);

  /// Fills all arrays. Throws InvalidArgument if the order names an array that is not drawn.
  void fill();

 private:
  struct Draw {
    Drawn array;
    std::function<void(RandomState&)> fill;
  };

  std::uint64_t seed(const JsonNode& drawing) const;
  /// Sorts the draws by the scene's order.
  void sort();

  std::optional<std::int64_t> seed_;
  std::optional<JsonNode> order_;
  std::vector<Draw> draws_;
  std::vector<std::function<void()>> by_word_;
};

/// Returns the number of columns under a key such as "dim", if present.
std::optional<std::int64_t> parse_dim(const JsonNode& node, const char* key);

/// Parses "tokens" or "text" of the scene or its source. Sets `batched` for a list of lists.
void parse_words(const JsonNode& node, Drawn array, Drawer& drawer, Sequence& sequence,
                 bool& batched);

/// Parses "embeddings" of the scene or its source, whose words must have been parsed. Sets
/// `batched` for a list of matrices.
void parse_embeddings(const JsonNode& node, Drawn array, Drawer& drawer, Sequence& sequence,
                      bool& batched);

/// Parses "query", "key" and "value" of the scene, whose words must have been parsed.
DirectInputs parse_direct(const JsonNode& root, Drawer& drawer, Scene& scene);

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

/// Parses the keys that change nothing in the steps: normalizations, focus, notes, expectations,
/// questions, number type and precision. `root` is the scene.
void parse_presentation(const JsonNode& root, Scene& scene);

Expectation parse_expectation(const JsonNode& node);
Question parse_question(const JsonNode& node);
/// Parses "learn". The words of `scene` must have been parsed.
std::vector<Wish> parse_learn(const JsonNode& node, const Scene& scene);

}  // namespace fovea::scene
