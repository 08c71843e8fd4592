// SPDX-License-Identifier: Apache-2.0
//
// Scenes and traces. A scene is a small attention problem with words as tokens. A trace holds every
// step of the scene's computation by the reference, and can be rendered as text, JSON, Markdown,
// LaTeX, one self-contained HTML page or slides. The functions return strings and never print. The
// file format is described in docs/scene.md.

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

/// A trace stores every step, so scenes are limited to this size; larger problems are for the
/// engine.
inline constexpr std::int64_t kMaxTokens = 1024;
inline constexpr int kMaxDecimals = 17;
inline constexpr std::int64_t kMaxFileBytes = std::int64_t{16} << 20;

/// A batch of token sequences of the same length, with their embeddings.
struct Sequence {
  /// [batch][length]; UTF-8. Token ids are stored in decimal.
  std::vector<std::vector<std::string>> tokens;
  /// Whether the tokens of the scene are numeric ids, which JSON output then writes as numbers.
  bool numeric = false;
  /// [batch, length, dim] float64; undefined if the scene has direct queries, keys and values.
  Tensor embeddings;
  /// The random source of the embeddings, such as "rand, seed 42"; empty if they were specified.
  std::string drawn;

  std::int64_t length() const { return static_cast<std::int64_t>(tokens.front().size()); }
};

/// The weights that project embeddings to queries, keys and values.
struct Projections {
  Tensor query;  ///< [dim, heads * head_dim] float64
  Tensor key;    ///< [source dim, kv_heads * key_dim]
  Tensor value;  ///< [source dim, kv_heads * value_dim]
  /// The random source of each matrix, such as "randint(0, 3), seed 42"; empty if it was specified.
  std::string query_drawn, key_drawn, value_drawn;
};

/// Queries, keys and values that a scene specifies directly, without embeddings and projections.
struct DirectInputs {
  Tensor query;  ///< [batch, queries, heads * head_dim] float64
  Tensor key;    ///< [batch, keys, kv_heads * key_dim]
  Tensor value;  ///< [batch, keys, kv_heads * value_dim]
  /// The random source of each matrix; empty if it was specified.
  std::string query_drawn, key_drawn, value_drawn;
};

/// The permitted difference between a computed and an expected number.
struct FOVEA_API Tolerance {
  enum class Kind : std::uint8_t {
    kExact,        ///< equal
    kDigits,       ///< within half a unit of the `digits`-th decimal place
    kSignificant,  ///< within half a unit of the `digits`-th significant digit of the number with
                   ///< the smaller magnitude
    kRelative,     ///< within atol + rtol * |expected|
  };
  Kind kind = Kind::kExact;
  int digits = 0;
  double rtol = 0.0;
  double atol = 0.0;

  /// Returns the largest permitted error of one number.
  double allowed(double expected, double computed) const;
};

/// The expected array or scalar of a step, specified by the author of the scene.
struct Expectation {
  std::string step;                 ///< the name of a step, such as "focus.key"
  std::vector<std::int64_t> index;  ///< leading indices of the part to compare; empty for the whole
                                    ///< step
  Tensor values;                    ///< float64, in the shape of the scene file
  std::vector<std::string> words;   ///< expected tokens, instead of values
  Tolerance tolerance;
  std::string note;   ///< the author's note, such as the reason for a wide tolerance
  std::string place;  ///< JSON path of the expectation, such as "expect[3]"
};

/// A number of the trace that the reader is asked for.
struct Question {
  std::string step;                 ///< the name of a step, such as "focus.weights"
  std::vector<std::int64_t> index;  ///< the indices of one number of the step
  std::string ask;                  ///< the author's question
  std::string hint;                 ///< empty if there is none
  Tolerance tolerance;              ///< the permitted error of the answer
  std::string place;                ///< JSON path of the question, such as "questions[3]"
};

/// The token whose computation is shown in detail.
struct Focus {
  std::int64_t item = 0;   ///< index in the batch
  std::int64_t index = 0;  ///< index of the token

  friend bool operator==(const Focus&, const Focus&) = default;
};

/// The attention weight to be learned for a query and a key (fovea/train_scene.h).
struct Wish {
  std::int64_t item = 0;  ///< index in the batch
  std::int64_t query = 0;
  std::int64_t key = 0;
  double weight = 0.0;     ///< the minimum weight; 0: the query should not attend to the key
  std::string place = {};  ///< JSON path of the wish, such as "learn.one.journey"
};

/// The author's notes: pairs of a step's name and a text, in the order of the scene file.
using Notes = std::vector<std::pair<std::string, std::string>>;

/// A small attention problem with words as tokens.
struct Scene {
  std::string title;
  Sequence words;
  std::optional<Sequence> source;  ///< for cross-attention: the sequence of keys and values
  bool batched = false;            ///< whether the scene was written with a batch dimension
  std::optional<Projections> projections;
  /// Replaces the embeddings and projections. The words then have undefined embeddings.
  std::optional<DirectInputs> direct;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;

  reference::ScoreKind score_kind;
  AttentionOptions options;
  /// `options.score.scale` as text: "1/sqrt(head_dim)" or a number.
  std::string scale_text;

  /// Normalizations to show side by side; the last one is used for the context.
  std::vector<reference::Normalization> normalizations;
  std::optional<Focus> focus;
  DType arithmetic = DType::kFloat64;
  int precision = 4;  ///< decimals to show, 0 to kMaxDecimals
  Notes notes;
  std::vector<Expectation> expect;
  std::vector<Question> questions;
  std::vector<Wish> learn;  ///< grouped by query

  /// The JSON text that the scene was parsed from, or equivalent text.
  std::string json;
};

/// Parses a scene from JSON text. Throws InvalidArgument naming the JSON path, the expected and the
/// actual value.
FOVEA_API Scene parse_scene(std::string_view json);

/// Reads a scene file. Throws IoError if the file cannot be read; otherwise throws as parse_scene,
/// with the file name before the JSON path.
FOVEA_API Scene load_scene(const std::string& path);

/// Returns the scene with these projections, written into its JSON with full precision, so that
/// parsing the JSON gives the same results. Removes the author's expectations, because they apply
/// to the original projections. Throws InvalidArgument if the scene has no embeddings to project,
/// or if the JSON would no longer be a valid scene.
FOVEA_API Scene with_projections(const Scene& scene, const Projections& projections);

/// Options for a scene made from a sentence, with random embeddings and no trained weights. Equal
/// words, whatever their case, have equal embeddings. With `causal`, the last word is in focus.
struct SentenceOptions {
  std::int64_t dim = 4;
  std::uint64_t seed = 42;
  bool causal = false;
  std::int64_t heads = 1;
  bool random_projections = false;
};

/// Splits `text` at white space and draws an embedding for each word. Throws InvalidArgument if the
/// text has no words or is not UTF-8, or if the options are invalid.
FOVEA_API Scene scene_from_sentence(std::string_view text, const SentenceOptions& options = {});

/// Sets the focus: a word of the scene, "@INDEX" (counted from 0, or from -1 backwards), or
/// "@ITEM:INDEX" in a batch. Questions about steps of another focus are removed. Throws
/// InvalidArgument if the word is unknown (the message lists the words) or occurs twice.
FOVEA_API void set_focus(Scene& scene, std::string_view query);

/// One step of the computation.
struct Step {
  std::string name;     ///< "weights", "focus.scores", "weights[sum]"; docs/scene.md lists them
  std::string title;    ///< "Weights of "journey""
  std::string formula;  ///< plain text
  /// The numbers, in the arithmetic's type. Batch and heads are leading dimensions, present if the
  /// scene has a batch or more than one head.
  Tensor values;
  /// The tokens, for steps without values: [length], or [batch * length] in a batch.
  std::vector<std::string> words;
  /// The shape of values or words.
  Shape shape;
  /// Whether the words are numeric ids.
  bool numeric = false;
};

/// The result of comparing one expectation.
struct Check {
  std::string step;
  std::vector<std::int64_t> index;
  bool passed = false;
  double max_error = 0.0;  ///< NaN if the numbers cannot be compared
  double tolerance = 0.0;  ///< the permitted error of the worst number
  std::string message;     ///< the reason for a failure
  std::string note;        ///< the note of the expectation
};

/// A scene with the results of every step. The functions that render a trace throw InvalidArgument
/// if trace_scene() did not compute it.
struct FOVEA_API Trace {
  Scene scene;
  std::vector<Step> steps;
  /// bool [batch, heads, queries, keys]: whether the query may see the key, given the mask and
  /// biases of -inf.
  Tensor visible;
  std::vector<Check> checks;  ///< one per expectation

  /// Returns the step with this name, or nullptr. "naive" is accepted for "softmax_unshifted".
  const Step* find(std::string_view name) const;
  bool passed() const;
};

/// Throws InvalidArgument if the parts of a scene do not fit together, naming the part. Scenes from
/// parse_scene() always pass; this is for scenes that were built or changed in code.
FOVEA_API void validate(const Scene& scene);

/// Computes every step. Throws as validate() does, and InvalidArgument if the options do not fit
/// the problem or a question does not ask for one number of a step.
FOVEA_API Trace trace_scene(const Scene& scene);

/// The colour support of a terminal.
enum class Color : std::uint8_t { kNone, k256, kTrueColor };

/// The minimum and maximum width of the text layout, in columns.
inline constexpr int kMinWidth = 40;
inline constexpr int kMaxWidth = 240;

struct TextOptions {
  Color color = Color::kNone;
  int width = 100;  ///< columns; clamped to kMinWidth .. kMaxWidth
};

/// Renders the trace step by step for a terminal or a text file.
FOVEA_API std::string to_text(const Trace& trace, const TextOptions& options = {});

/// Renders the trace as Markdown.
FOVEA_API std::string to_markdown(const Trace& trace);

/// Renders the trace as a complete LaTeX document for pdfLaTeX, LuaLaTeX or XeLaTeX.
FOVEA_API std::string to_latex(const Trace& trace);

/// Renders the trace as {"title", "tokens", "focus", "steps": [...], "checks": [...]}, with numbers
/// in full precision.
FOVEA_API std::string to_json(const Trace& trace);

struct PageOptions {
  std::string language = "en";  ///< of the page's own texts: one of page_languages()
};

/// Returns the codes of the languages that a page's own texts exist in, English first.
FOVEA_API std::vector<std::string> page_languages();

/// Renders the trace as one self-contained HTML page, without network access or other files. Throws
/// InvalidArgument for an unknown language.
FOVEA_API std::string to_html(const Trace& trace, const PageOptions& options = {});

/// Renders two traces as one such page, for comparison: side by side, or on a narrow screen one at
/// a time. What the reader chooses in one of them, a word, a head, a step, the other one shows too,
/// if it has it.
FOVEA_API std::string to_html(const Trace& first, const Trace& second,
                              const PageOptions& options = {});

/// Renders the trace as one self-contained HTML file of slides, one per step, that keys, clicks and
/// swipes turn and that print one per page. Throws InvalidArgument for an unknown language.
FOVEA_API std::string to_slides(const Trace& trace, const PageOptions& options = {});

/// Renders only the weights of all words, in the format of to_text().
FOVEA_API std::string weights_to_text(const Trace& trace, const TextOptions& options = {});

/// Renders one line per expectation: its step, largest error and tolerance, and whether it passed.
FOVEA_API std::string checks_to_text(const Trace& trace, const TextOptions& options = {});

}  // namespace fovea::scene
