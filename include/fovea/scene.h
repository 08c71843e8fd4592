// SPDX-License-Identifier: Apache-2.0
//
// Scenes and traces: a small attention problem in words, every step of it computed by the
// reference, and its presentation as text, JSON, Markdown or one self-contained HTML page. The
// library returns strings; it never prints. The file format is described in docs/scene.md.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/reference.h"
#include "fovea/tensor.h"

namespace fovea::scene {

/// A scene materialises every step, so it is kept small; larger problems are for the engine.
inline constexpr std::int64_t kMaxTokens = 1024;
inline constexpr int kMaxDecimals = 17;
inline constexpr std::int64_t kMaxFileBytes = std::int64_t{16} << 20;

/// A batch of token sequences, all of one length, and their embeddings.
struct Sequence {
  /// [batch][length]; UTF-8. Numbers (as token ids) are written in decimal.
  std::vector<std::vector<std::string>> tokens;
  /// Whether the scene gave numbers, so that JSON shows numbers again.
  bool numeric = false;
  /// [batch, length, dim] float64
  Tensor embeddings;
  /// How the embeddings were drawn ("rand, seed 42"); empty when they were given.
  std::string drawn;

  std::int64_t length() const { return static_cast<std::int64_t>(tokens.front().size()); }
};

/// The weights that make queries, keys and values from embeddings.
struct Projections {
  Tensor query;  ///< [dim, heads * head_dim] float64
  Tensor key;    ///< [source dim, kv_heads * key_dim]
  Tensor value;  ///< [source dim, kv_heads * value_dim]
  /// How each was drawn ("randint(0, 3), seed 42"); empty where it was given.
  std::string query_drawn, key_drawn, value_drawn;
};

/// How far a computed number may be from an expected one.
struct FOVEA_API Tolerance {
  enum class Kind : std::uint8_t {
    kExact,        ///< equal
    kDigits,       ///< within half a unit of the `digits`-th decimal
    kSignificant,  ///< within half a unit of the `digits`-th significant digit of the smaller
                   ///< number
    kRelative,     ///< within atol + rtol * |expected|
  };
  Kind kind = Kind::kExact;
  int digits = 0;
  double rtol = 0.0;
  double atol = 0.0;

  /// The largest error allowed for one number.
  double allowed(double expected, double computed) const;
};

/// An array or a scalar that the author claims.
struct Expectation {
  std::string step;                 ///< a step's name, such as "focus.key"
  std::vector<std::int64_t> index;  ///< the part of the step that is meant; empty for all of it
  Tensor values;                    ///< float64, in the shape given
  std::vector<std::string> words;   ///< instead of values where tokens are expected
  Tolerance tolerance;
  std::string note;   ///< why a tolerance is wider than what was printed, and the like
  std::string place;  ///< its JSON path, "expect[3]"
};

/// The token whose story is told in detail.
struct Focus {
  std::int64_t item = 0;   ///< of the batch
  std::int64_t index = 0;  ///< of the token

  friend bool operator==(const Focus&, const Focus&) = default;
};

/// Where a query is to look, once the scene has learned it (fovea/train_scene.h).
struct Wish {
  std::int64_t item = 0;  ///< of the batch
  std::int64_t query = 0;
  std::int64_t key = 0;
  double weight = 0.0;     ///< at least; 0: not at all
  std::string place = {};  ///< its JSON path, "learn.one.journey"
};

/// A note of the author's, by the name of the step it belongs to, in the order given.
using Notes = std::vector<std::pair<std::string, std::string>>;

/// A small attention problem in words.
struct Scene {
  std::string title;
  Sequence words;
  std::optional<Sequence> source;  ///< where keys and values come from, in cross-attention
  bool batched = false;            ///< whether the scene was written with a batch dimension
  std::optional<Projections> projections;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;

  reference::ScoreKind score_kind;
  AttentionOptions options;
  /// How `options.score.scale` was written: "1/sqrt(head_dim)" or a number.
  std::string scale_text;

  /// Shown side by side; the last one makes the context.
  std::vector<reference::Normalization> normalizations;
  std::optional<Focus> focus;
  DType arithmetic = DType::kFloat64;
  int precision = 4;  ///< decimals shown, 0 to kMaxDecimals
  Notes notes;
  std::vector<Expectation> expect;
  std::vector<Wish> learn;  ///< those of one query stand together

  /// The JSON text this scene was read from or stands for.
  std::string json;
};

/// Reads a scene from JSON text. Throws InvalidArgument naming the place (a JSON path), what was
/// expected and what came.
FOVEA_API Scene parse_scene(std::string_view json);

/// Reads a scene file. Throws IoError when it cannot be read, otherwise as parse_scene, with the
/// file's name before the place.
FOVEA_API Scene load_scene(const std::string& path);

/// The scene with these weights, typed into its JSON in full precision, so that whoever reads that
/// computes the same. What the author expected of other weights is gone. Throws InvalidArgument
/// where the JSON would be no scene any more.
FOVEA_API Scene with_projections(const Scene& scene, const Projections& projections);

/// A scene for a sentence: naive random embeddings, and no trained weights.
struct SentenceOptions {
  std::int64_t dim = 4;
  std::uint64_t seed = 42;
  bool causal = false;
  std::int64_t heads = 1;
  bool random_projections = false;
};

/// Splits `text` at white space and draws an embedding for each word. Throws InvalidArgument for
/// text without a word, text that is not UTF-8, or options that do not fit.
FOVEA_API Scene scene_from_sentence(std::string_view text, const SentenceOptions& options = {});

/// Chooses the focus: a word of the scene, "@INDEX" (counted from 0), or "@ITEM:INDEX" in a batch.
/// Throws InvalidArgument for an unknown word (listing the words) or one that occurs twice.
FOVEA_API void set_focus(Scene& scene, std::string_view query);

/// One step of the story.
struct Step {
  std::string name;     ///< "weights", "focus.scores", "weights[sum]"; docs/scene.md lists them
  std::string title;    ///< "Weights of "journey""
  std::string formula;  ///< plain text
  /// The numbers, in the arithmetic's type. Heads and batch are leading dimensions, present where
  /// the scene has more than one head or a batch.
  Tensor values;
  /// Instead of values, for tokens: [length], or [batch * length] in a batch.
  std::vector<std::string> words;
  /// The shape of values or words.
  Shape shape;
};

/// One expectation, compared.
struct Check {
  std::string step;
  std::vector<std::int64_t> index;
  bool passed = false;
  double max_error = 0.0;  ///< nan where the numbers cannot be compared
  double tolerance = 0.0;  ///< what was allowed where the error was worst
  std::string message;     ///< why, when shapes or words differ or the step is missing
  std::string note;        ///< the expectation's
};

/// Every step of a scene, materialised.
struct FOVEA_API Trace {
  Scene scene;
  std::vector<Step> steps;
  /// bool [batch, heads, queries, keys]: whether the query may see the key, by the mask and by
  /// biases of -inf.
  Tensor visible;
  std::vector<Check> checks;  ///< one per expectation

  /// The step of this name, or nullptr.
  const Step* find(std::string_view name) const;
  bool passed() const;
};

/// Throws InvalidArgument when a scene's parts do not fit together, naming the part. parse_scene()
/// gives only scenes that do; this is for those built or changed by hand.
FOVEA_API void validate(const Scene& scene);

/// Computes every step. Throws as validate() does, and for options that do not fit the problem.
FOVEA_API Trace trace_scene(const Scene& scene);

/// How much a terminal can show.
enum class Color : std::uint8_t { kNone, k256, kTrueColor };

/// The least and most columns that text is laid out for.
inline constexpr int kMinWidth = 40;
inline constexpr int kMaxWidth = 240;

struct TextOptions {
  Color color = Color::kNone;
  int width = 100;  ///< columns; clamped to kMinWidth .. kMaxWidth
};

/// The story, step by step, for a terminal or a text file.
FOVEA_API std::string to_text(const Trace& trace, const TextOptions& options = {});

/// The story as Markdown.
FOVEA_API std::string to_markdown(const Trace& trace);

/// {"title", "tokens", "focus", "steps": [...], "checks": [...]}, numbers with full precision.
FOVEA_API std::string to_json(const Trace& trace);

/// One self-contained HTML page: no network, no other file.
FOVEA_API std::string to_html(const Trace& trace);

/// The weights of all words alone, as to_text() shows them.
FOVEA_API std::string weights_to_text(const Trace& trace, const TextOptions& options = {});

/// One line per expectation: its step, largest error and tolerance, and whether it held.
FOVEA_API std::string checks_to_text(const Trace& trace, const TextOptions& options = {});

}  // namespace fovea::scene
