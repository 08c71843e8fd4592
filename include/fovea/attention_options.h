// SPDX-License-Identifier: Apache-2.0
//
// The one description of an attention problem beside its tensors: scale, softcap, biases, sinks,
// mask and alignment. It means the same to every part of Fovea.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "fovea/execution.h"
#include "fovea/export.h"
#include "fovea/mask.h"
#include "fovea/tensor.h"

namespace fovea {

/// Where the queries stand among the keys: query i is at position i + offset, for causal, window,
/// ALiBi and relative table alike.
class Alignment {
 public:
  /// The last query stands at the last key: offset = kv_len - q_len, counted for each batch item
  /// or packed sequence after key_lengths. The default.
  static Alignment bottom_right() { return Alignment(Kind::kBottomRight); }
  /// The first query stands at the first key: offset = 0.
  static Alignment top_left() { return Alignment(Kind::kOffset, {0}); }
  /// A number of your own.
  static Alignment offset(std::int64_t offset) { return Alignment(Kind::kOffset, {offset}); }
  /// One number per batch item or packed sequence.
  static Alignment offsets(std::vector<std::int64_t> offsets) {
    return Alignment(Kind::kOffset, std::move(offsets));
  }

  Alignment() = default;

  bool is_bottom_right() const { return kind_ == Kind::kBottomRight; }
  /// The given offsets: one for all items, or one each; empty for bottom_right().
  const std::vector<std::int64_t>& values() const { return offsets_; }

 private:
  enum class Kind : std::uint8_t { kBottomRight, kOffset };
  explicit Alignment(Kind kind, std::vector<std::int64_t> offsets = {})
      : kind_(kind), offsets_(std::move(offsets)) {}

  Kind kind_ = Kind::kBottomRight;
  std::vector<std::int64_t> offsets_;
};

/// ALiBi (Press et al. 2022): adds -slope[head] * |i + offset - j| to every score.
struct Alibi {
  /// One per query head; empty means default_alibi_slopes(q_heads).
  std::vector<double> slopes;
};

/// The paper's slopes: 2^(-8 (h + 1) / heads) for a power of two; otherwise those of the power of
/// two below, followed by every other slope of the power of two above.
FOVEA_API std::vector<double> default_alibi_slopes(std::int64_t heads);
/// One of them.
FOVEA_API double default_alibi_slope(std::int64_t head, std::int64_t heads);

/// T5's relative-position bias (Raffel et al. 2020): adds table[bucket(j - i - offset), head].
struct RelativeTable {
  /// [buckets, q_heads]
  TensorRef table;
  /// Keys behind and ahead of the query have buckets of their own.
  bool bidirectional = true;
  /// All distances from here on share the last bucket.
  std::int64_t max_distance = 128;
};

/// T5's bucket of a relative position (key position minus query position): small distances have a
/// bucket each, larger ones share buckets that widen logarithmically. The table's shape must be a
/// valid one.
FOVEA_API std::int64_t relative_bucket(std::int64_t relative_position,
                                       const RelativeTable& relative);

/// A rectangle of scores for a custom function: scores[k * stride + i] is that of the query
/// first.query + i and the key first.key + k. There may be more of them than the problem has, whose
/// results nobody looks at.
struct ScoreTile {
  float* scores = nullptr;
  std::int64_t stride = 0;
  std::int64_t keys = 0;
  std::int64_t lanes = 0;  ///< queries
  ScorePosition first = {};
  float factor = 1.0f;  ///< to be multiplied to every result
};

/// A score function of your own, for the engine and for the reference. fovea/custom_score.h makes
/// one from a functor on vectors, for every SIMD target.
struct CustomScore {
  /// Replaces every score of the tile by factor * f(score). Null: no function.
  void (*tile)(const void* state, const ScoreTile& tile) = nullptr;
  /// The same for one score in double precision.
  double (*one)(const void* state, double score, const ScorePosition& at) = nullptr;
  /// For gradients: replaces every score of the tile by factor * f'(score). May be null in a
  /// function that only attention_forward and attention_decode are given.
  void (*tile_derivative)(const void* state, const ScoreTile& tile) = nullptr;
  /// The same for one score in double precision.
  double (*one_derivative)(const void* state, double score, const ScorePosition& at) = nullptr;
  /// The parameters, whatever they are; handed to all.
  std::shared_ptr<const void> state = nullptr;
};

/// What turns query . key into a score; in this order: scale, softcap, custom function, biases.
struct ScoreOptions {
  /// Factor on query . key; 1 / sqrt(head_dim) when not given (1 where head_dim is 0).
  std::optional<double> scale = std::nullopt;
  /// c > 0 squashes a score s to c * tanh(s / c); 0 leaves it alone.
  double softcap = 0.0;
  CustomScore custom = {};
  /// Added to the scores, floats of any type; broadcast to [batch, q_heads, q_len, kv_len] from the
  /// right: missing leading dimensions and extents of 1 repeat. -inf masks, whatever the score and
  /// other biases are; so does any score of -inf.
  TensorRef bias = {};
  std::optional<Alibi> alibi = std::nullopt;
  std::optional<RelativeTable> relative = std::nullopt;
  /// One extra logit per query head, which joins the denominator only; lse includes it.
  std::vector<double> sinks = {};
};

/// Sequences of different lengths, one after the other along the length dimension of tensors whose
/// batch is 1 (FlashAttention's cumulative lengths). Sequence s has the queries query_starts[s] to
/// query_starts[s + 1] and the keys key_starts[s] to key_starts[s + 1], and sees nothing else. Each
/// is a problem of its own, as a batch item is: masks, alignment and position biases count within
/// it, and what there is one of per batch item (offsets, key_lengths) there is one of per sequence.
/// Tensors that are laid out along queries or keys (bias, dense masks, document ids) are packed as
/// the inputs are.
struct PackedSequences {
  /// 0, ..., q_len: one more than there are sequences, never decreasing. Both empty: not packed.
  std::vector<std::int64_t> query_starts;
  /// 0, ..., kv_len.
  std::vector<std::int64_t> key_starts;

  /// The number of sequences (ProblemShape::sequences); 0: not packed.
  std::int64_t count() const {
    return query_starts.empty() ? 0 : static_cast<std::int64_t>(query_starts.size()) - 1;
  }
};

/// Dropout of weights (Srivastava et al. 2014): each weight is left out with this probability, and
/// what is kept is divided by 1 - probability. lse knows nothing of it. Which weights are kept
/// follows from these numbers and the place of the weight (batch item or packed sequence, query
/// head, query, key) alone, by Philox 4x32-10 (Salmon et al. 2011), so that it is found again
/// without being stored, on any number of threads and SIMD target. Queries and keys of packed
/// sequences count within their sequence. For fewer than 2^32 heads of all items, 2^32 queries and
/// 2^34 keys.
struct Dropout {
  /// In [0, 1), to the 32nd binary place.
  double probability = 0.0;
  std::uint64_t seed = 0;
  /// Another number for each call with the same seed.
  std::uint32_t call = 0;
};

struct AttentionOptions {
  Mask mask = {};
  ScoreOptions score = {};
  Dropout dropout = {};
  Alignment alignment = {};
  PackedSequences sequences = {};
  /// How the call runs: threads, workspace, stopping, progress. The reference has no use for it.
  Execution execution = {};
};

/// Throws InvalidArgument when the options do not fit the problem, naming the option, what was
/// expected and what came.
FOVEA_API void validate(const AttentionOptions& options, const ProblemShape& shape);

/// Where one of a problem's items (ProblemShape::items), a batch item or a packed sequence, lies in
/// the tensors: batch index, first query and key, and how many of each.
struct SequenceSpan {
  std::int64_t batch = 0;
  std::int64_t query_start = 0;
  std::int64_t q_len = 0;
  std::int64_t key_start = 0;
  std::int64_t kv_len = 0;
};

/// Item `item` of valid options: batch item `item` as a whole, or what sequence `item` has of batch
/// item 0.
FOVEA_API SequenceSpan sequence_span(const AttentionOptions& options, const ProblemShape& shape,
                                     std::int64_t item);

/// The offset of a batch item or packed sequence: its query i stands at position i + offset among
/// its keys.
FOVEA_API std::int64_t query_offset(const AttentionOptions& options, const ProblemShape& shape,
                                    std::int64_t item);

}  // namespace fovea
