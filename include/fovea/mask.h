// SPDX-License-Identifier: Apache-2.0
//
// Masks as rules: which query may see which key, said without an N x N tensor. Rules combine with
// `&` (both must allow) and `|` (either may allow).

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea {

/// A mask joins at most this many rules.
inline constexpr int kMaxMaskRules = 64;

/// One score's place. `offset` is the alignment: query i stands at position i + offset among the
/// keys (AttentionOptions::alignment). In packed sequences (AttentionOptions::sequences) `batch` is
/// the number of the sequence, query and key count within it, and the starts say where it begins:
/// what is laid out along the packed tensors is read at query_start + query and key_start + key.
struct ScorePosition {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t query = 0;
  std::int64_t key = 0;
  std::int64_t offset = 0;
  std::int64_t query_start = 0;
  std::int64_t key_start = 0;
};

/// A rectangle of the scores of one head of one batch item: `queries` from first.query on, `keys`
/// from first.key on.
struct ScoreBlock {
  ScorePosition first;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
};

/// What a mask lets be seen of a block: nothing, everything, or it has to be asked for each score.
enum class Visibility : std::uint8_t { kNone, kAll, kSome };

/// The keys from `begin` to before `end`; `exact` when a query sees all of them.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool exact = true;
};

/// The extents that a problem's options are checked against.
struct ProblemShape {
  std::int64_t batch = 1;
  std::int64_t q_heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  /// How many sequences are packed into the batch's only item; q_len and kv_len are then their
  /// totals. 0: not packed.
  std::int64_t sequences = 0;

  /// The problems in it that do not see each other: sequences, or batch items.
  std::int64_t items() const { return sequences > 0 ? sequences : batch; }
};

struct PartSpan;  // of the library's own (problem/part.h)

/// A rule, or rules combined. Cheap to copy; immutable. A default-constructed mask lets every query
/// see every key.
class FOVEA_API Mask {
 public:
  struct Node;

  Mask() = default;
  explicit Mask(std::shared_ptr<const Node> node) : node_(std::move(node)) {}

  /// Whether the query may see the key.
  bool visible(const ScorePosition& at) const;

  /// What of a block is visible, without asking for each score. kNone and kAll are always true.
  /// kSome is exact for a rule alone, but for documents(), which compares ranges of ids; rules
  /// joined by `&` or `|` may say kSome of a block of which nothing or everything is visible. A
  /// block without queries or keys is kNone. Cost: O(1) per rule; documents() O(queries + keys) /
  /// 64; dense() reads the block until both values were found, repeated rows and columns once.
  Visibility classify(const ScoreBlock& block) const;

  /// A range within [0, kv_len) that holds every key the query sees (row.key has no meaning); the
  /// empty one is [0, 0), and exact. Exact for causal, window, prefix and key_lengths, for
  /// documents() whose ids never decrease along these keys, and for dense() that repeats along
  /// keys; otherwise documents() and dense() say [0, kv_len), not exact. `&` intersects: exact
  /// when both are exact or nothing is left. `|` spans both: exact when exact ranges leave no gap
  /// or one covers the other. Cost: O(1) per rule, documents() O(log kv_len).
  KeyRange key_range(const ScorePosition& row, std::int64_t kv_len) const;

  /// Writes for `count` keys from first.key on whether first.query may see them, 1 or 0 each. Fast
  /// for long runs; does not allocate.
  void fill(const ScorePosition& first, std::int64_t count, std::uint8_t* visible) const;

  /// True when there is no rule at all.
  bool allows_all() const { return node_ == nullptr; }

  /// The number of real keys of a batch item or packed sequence, when key_lengths() is joined to
  /// the rest by `&` only; the default alignment counts from there.
  std::optional<std::int64_t> key_length(std::int64_t item) const;

  /// Throws InvalidArgument when a rule does not fit the problem, naming the rule. `key_starts` are
  /// those of packed sequences (PackedSequences).
  void validate(const ProblemShape& shape, std::span<const std::int64_t> key_starts = {}) const;

  /// The rules as they are written in C++: "causal() & window(3, 0)"; "all" without a rule.
  std::string to_string() const;

  /// Throw InvalidArgument beyond kMaxMaskRules rules.
  friend FOVEA_API Mask operator&(const Mask& a, const Mask& b);
  friend FOVEA_API Mask operator|(const Mask& a, const Mask& b);
  friend Mask part_of(const Mask& mask, const PartSpan& part);

 private:
  std::shared_ptr<const Node> node_;
};

/// Key j is visible iff j <= i + offset. With the default alignment and q_len = 2, kv_len = 5:
///     1 1 1 1 0
///     1 1 1 1 1
/// and with q_len = 5, kv_len = 2 the first three rows see nothing:
///     0 0
///     0 0
///     0 0
///     1 0
///     1 1
FOVEA_API Mask causal();

/// Key j is visible iff i + offset - left <= j <= i + offset + right; -1 means unbounded.
/// Throws InvalidArgument for less than -1.
FOVEA_API Mask window(std::int64_t left, std::int64_t right);

/// Key j is visible iff j < n. A prefix language model is `causal() | prefix(n)`.
/// Throws InvalidArgument for a negative n.
FOVEA_API Mask prefix(std::int64_t n);

/// A query sees the keys of its own document. int64 ids, [length], or [batch, length] when the
/// batch items differ; packed as the sequences are, where they are packed. Other rules keep
/// counting positions in the whole sequence: an alignment per document needs q_len = kv_len, where
/// both are the same.
FOVEA_API Mask documents(const Tensor& query_ids, const Tensor& key_ids);

/// The same with one array, where q_len == kv_len.
FOVEA_API Mask documents(const Tensor& ids);

/// Key j of batch item (or packed sequence) b is visible iff j < lengths[b]; the rest is padding.
/// One length serves all.
FOVEA_API Mask key_lengths(std::vector<std::int64_t> lengths);

/// True where visible; bool, broadcast to [batch, q_heads, q_len, kv_len] from the right: missing
/// leading dimensions and extents of 1 repeat.
FOVEA_API Mask dense(TensorRef visible);

}  // namespace fovea
