// SPDX-License-Identifier: Apache-2.0
//
// Everything that defines an attention problem apart from its tensors: scale, softcap, biases,
// sinks, mask and alignment. All operations of Fovea share these options.

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

/// The positions of the queries among the keys: query i is at position i + offset. Causal and
/// window masks, ALiBi and the relative table all use these positions.
class Alignment {
 public:
  /// The last query is at the position of the last key: offset = kv_len - q_len, computed per batch
  /// item or packed sequence, with kv_len after key_lengths. The default.
  static Alignment bottom_right() { return Alignment(Kind::kBottomRight); }
  /// The first query is at the position of the first key: offset = 0.
  static Alignment top_left() { return Alignment(Kind::kOffset, {0}); }
  /// The same offset for all items.
  static Alignment offset(std::int64_t offset) { return Alignment(Kind::kOffset, {offset}); }
  /// One offset per batch item or packed sequence.
  static Alignment offsets(std::vector<std::int64_t> offsets) {
    return Alignment(Kind::kOffset, std::move(offsets));
  }

  Alignment() = default;

  bool is_bottom_right() const { return kind_ == Kind::kBottomRight; }
  /// Returns the offsets: one for all items, or one per item; empty for bottom_right().
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

/// Returns the paper's slopes: 2^(-8 (h + 1) / heads) if `heads` is a power of two; otherwise those
/// of the next lower power of two, followed by every other slope of the next higher one. Throws
/// InvalidArgument for a negative number.
FOVEA_API std::vector<double> default_alibi_slopes(std::int64_t heads);
/// Returns the slope of one head. Throws InvalidArgument unless 0 <= head < heads.
FOVEA_API double default_alibi_slope(std::int64_t head, std::int64_t heads);

/// T5's relative-position bias (Raffel et al. 2020): adds table[bucket(j - i - offset), head].
struct RelativeTable {
  /// [buckets, q_heads]
  TensorRef table;
  /// Whether keys before and after the query have separate buckets.
  bool bidirectional = true;
  /// All distances >= max_distance share the last bucket.
  std::int64_t max_distance = 128;
};

/// Returns T5's bucket of a relative position (key position minus query position). Each small
/// distance has its own bucket; larger distances share buckets that widen logarithmically. The
/// table's shape must be valid.
FOVEA_API std::int64_t relative_bucket(std::int64_t relative_position,
                                       const RelativeTable& relative);

/// A rectangle of scores for a custom function: scores[k * stride + i] is the score of query
/// first.query + i and key first.key + k. The rectangle may extend beyond the problem's queries and
/// keys; results there are ignored.
struct ScoreTile {
  float* scores = nullptr;
  std::int64_t stride = 0;
  std::int64_t keys = 0;
  std::int64_t lanes = 0;  ///< number of queries
  ScorePosition first = {};
  float factor = 1.0f;  ///< factor on every result
};

/// A user-defined score function, called by the engine and by the reference. fovea/custom_score.h
/// creates one from a vector functor, for every SIMD target.
struct CustomScore {
  /// Replaces every score of the tile with factor * f(score). Null: no function.
  void (*tile)(const void* state, const ScoreTile& tile) = nullptr;
  /// Returns f(score) in double precision.
  double (*one)(const void* state, double score, const ScorePosition& at) = nullptr;
  /// For gradients: replaces every score of the tile with factor * f'(score). May be null if the
  /// function is used only with attention_forward and attention_decode.
  void (*tile_derivative)(const void* state, const ScoreTile& tile) = nullptr;
  /// Returns f'(score) in double precision.
  double (*one_derivative)(const void* state, double score, const ScorePosition& at) = nullptr;
  /// Parameters of any type, passed to all functions.
  std::shared_ptr<const void> state = nullptr;
};

/// The operations that turn query . key into a score, applied in this order: scale, softcap, custom
/// function, biases.
struct ScoreOptions {
  /// Factor on query . key; defaults to 1 / sqrt(head_dim) (1 if head_dim is 0).
  std::optional<double> scale = std::nullopt;
  /// c > 0 maps a score s to c * tanh(s / c); 0 disables the softcap.
  double softcap = 0.0;
  CustomScore custom = {};
  /// Added to the scores; any float type. Broadcast to [batch, q_heads, q_len, kv_len] from the
  /// right: missing leading dimensions and extents of 1 repeat. A bias of -inf masks the pair,
  /// regardless of its score and other biases. A score of -inf masks the pair as well.
  TensorRef bias = {};
  std::optional<Alibi> alibi = std::nullopt;
  std::optional<RelativeTable> relative = std::nullopt;
  /// One extra logit per query head, added to the softmax denominator only; lse includes it.
  std::vector<double> sinks = {};
};

/// Sequences of different lengths, concatenated along the length dimension of tensors with batch 1
/// (FlashAttention's cumulative lengths). Sequence s has the queries in the half-open range
/// [query_starts[s], query_starts[s + 1]) and the keys in [key_starts[s], key_starts[s + 1]); its
/// queries see only these keys. Each sequence is an independent problem, like a batch item: masks,
/// alignment and position biases are relative to it, and per-item options (offsets, key_lengths)
/// have one entry per sequence. Tensors that are laid out along queries or keys (bias, dense masks,
/// document ids) are packed in the same way as the inputs.
struct PackedSequences {
  /// 0, ..., q_len: nondecreasing, with one more entry than sequences. Both empty: not packed.
  std::vector<std::int64_t> query_starts;
  /// 0, ..., kv_len, in the same format as query_starts.
  std::vector<std::int64_t> key_starts;

  /// Returns the number of sequences (ProblemShape::sequences); 0: not packed.
  std::int64_t count() const {
    return query_starts.empty() ? 0 : static_cast<std::int64_t>(query_starts.size()) - 1;
  }
};

/// Dropout of weights (Srivastava et al. 2014): each weight is dropped with this probability, and
/// the weights that are kept are divided by 1 - probability. lse is not affected. The choice
/// depends only on the fields below and on the position of the weight (batch item or packed
/// sequence, query head, query, key), through Philox 4x32-10 (Salmon et al. 2011). It can therefore
/// be recomputed instead of stored, on any number of threads and any SIMD target. Positions in
/// packed sequences are relative to the sequence. Requires fewer than 2^32 heads over all items,
/// 2^32 queries and 2^34 keys.
struct Dropout {
  /// In [0, 1), with a resolution of 2^-32.
  double probability = 0.0;
  std::uint64_t seed = 0;
  /// Should differ between calls with the same seed.
  std::uint32_t call = 0;
  /// The position of the first query and key, for calls that compute a part of a larger problem.
  std::int64_t first_query = 0;
  std::int64_t first_key = 0;
};

/// All options of an attention call.
struct AttentionOptions {
  Mask mask = {};
  ScoreOptions score = {};
  Dropout dropout = {};
  Alignment alignment = {};
  PackedSequences sequences = {};
  /// Whether attention_forward and attention_backward may compute products of float32 as six
  /// products of bfloat16 by the tile unit of CPUs that have one (Intel's AMX). They are 1.5 to 2
  /// times as fast there, and at least as exact (docs/numerics.md).
  bool float32_by_tiles = true;
  /// Execution settings: threads, workspace, stop token, progress. Ignored by the reference.
  Execution execution = {};
};

/// Throws InvalidArgument if the options do not fit the problem, naming the option, the expected
/// and the actual value.
FOVEA_API void validate(const AttentionOptions& options, const ProblemShape& shape);

/// The part of the tensors that belongs to one item of a problem (ProblemShape::items), that is, to
/// a batch item or a packed sequence: batch index, first query, first key, query count, key count.
struct SequenceSpan {
  std::int64_t batch = 0;
  std::int64_t query_start = 0;
  std::int64_t q_len = 0;
  std::int64_t key_start = 0;
  std::int64_t kv_len = 0;
};

/// Returns the span of an item: the whole of batch item `item`, or the part of batch item 0 that
/// packed sequence `item` occupies. The options must be valid.
FOVEA_API SequenceSpan sequence_span(const AttentionOptions& options, const ProblemShape& shape,
                                     std::int64_t item);

/// Returns the offset of a batch item or packed sequence: its query i is at position i + offset
/// among its keys.
FOVEA_API std::int64_t query_offset(const AttentionOptions& options, const ProblemShape& shape,
                                    std::int64_t item);

}  // namespace fovea
