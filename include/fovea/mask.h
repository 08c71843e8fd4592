// SPDX-License-Identifier: Apache-2.0
//
// Masks as rules: they define which query may see which key without an N x N tensor. Rules combine
// with `&` (both must allow) and `|` (either may allow).

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

/// The maximum number of rules in a mask.
inline constexpr int kMaxMaskRules = 64;

/// The position of one score. `offset` is the alignment: query i is at position i + offset among
/// the keys (AttentionOptions::alignment). In packed sequences (AttentionOptions::sequences),
/// `batch` is the index of the sequence, and query and key are relative to its start. Data laid out
/// along the packed tensors is read at query_start + query and key_start + key.
struct ScorePosition {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t query = 0;
  std::int64_t key = 0;
  std::int64_t offset = 0;
  std::int64_t query_start = 0;
  std::int64_t key_start = 0;
};

/// A rectangle of the scores of one head of one batch item: `queries` queries starting at
/// first.query, and `keys` keys starting at first.key.
struct ScoreBlock {
  ScorePosition first;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
};

/// The visibility of a block of scores: none visible, all visible, or each score must be checked.
enum class Visibility : std::uint8_t { kNone, kAll, kSome };

/// The keys in [begin, end). `exact` is true if the query sees all of them.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool exact = true;
};

/// The problem extents that options are validated against.
struct ProblemShape {
  std::int64_t batch = 1;
  std::int64_t q_heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  /// The number of sequences packed into the only batch item; q_len and kv_len are then totals over
  /// them. 0: not packed.
  std::int64_t sequences = 0;

  /// Returns the number of independent problems: packed sequences or batch items.
  std::int64_t items() const { return sequences > 0 ? sequences : batch; }
};

struct Memory;    // internal (core/tensor_memory.h)
struct PartSpan;  // internal (problem/part.h)
struct MaskRule;  // internal (problem/mask_rules.h)

/// A rule or a combination of rules. Immutable and cheap to copy. With a default-constructed mask,
/// every query sees every key.
class FOVEA_API Mask {
 public:
  struct Node;

  Mask() = default;
  explicit Mask(std::shared_ptr<const Node> node) : node_(std::move(node)) {}

  /// Returns whether the query may see the key.
  bool visible(const ScorePosition& at) const;

  /// Returns the visibility of a block without checking each score. kNone and kAll are always
  /// correct. kSome is exact for a single rule, except documents(), which compares ranges of ids.
  /// For rules combined with `&` or `|`, kSome may be returned although nothing or everything is
  /// visible. A block without queries or keys is kNone.
  ///
  /// Cost: O(1) per rule; documents() O((queries + keys) / 64); dense() reads the block until both
  ///       values have occurred, and reads repeated rows and columns once.
  Visibility classify(const ScoreBlock& block) const;

  /// Returns a range of the `count` keys starting at first.key that contains every one of them that
  /// the query first.query sees. The empty range is [0, 0) and exact. The range is exact for
  /// causal, window, prefix and key_lengths, and for documents() if ids along these keys are
  /// nondecreasing. If its tensor is contiguous or broadcast along keys, dense() returns the range
  /// from the first to the last visible key, exact if no key between them is hidden. Otherwise
  /// documents() and dense() return all `count` keys, marked inexact. `&` intersects the ranges:
  /// exact if both are exact or the intersection is empty. `|` returns the hull: exact if both are
  /// exact and leave no gap, or if one range is exact and contains the other.
  ///
  /// Cost: O(1) per rule; documents() O(log count); dense() O(count).
  KeyRange key_range(const ScorePosition& first, std::int64_t count) const;
  /// Sets each element of `ranges` to the key_range() of one of as many successive queries, the
  /// first of which is first.query.
  void key_ranges(const ScorePosition& first, std::int64_t count, std::span<KeyRange> ranges) const;

  /// Writes one element for each of the `count` keys starting at first.key: 1 if the query
  /// first.query may see the key, else 0. Most efficient for a large `count`. Does not allocate.
  void fill(const ScorePosition& first, std::int64_t count, std::uint8_t* visible) const;

  /// Returns whether the mask has no rules.
  bool allows_all() const { return node_ == nullptr; }

  /// Returns the number of keys without padding of a batch item or packed sequence, if
  /// key_lengths() is combined with the other rules by `&` only. The default alignment uses this
  /// number as kv_len.
  std::optional<std::int64_t> key_length(std::int64_t item) const;

  /// Throws InvalidArgument if a rule does not fit the problem, naming the rule. `key_starts` is
  /// PackedSequences::key_starts.
  void validate(const ProblemShape& shape, std::span<const std::int64_t> key_starts = {}) const;

  /// Returns the rules in C++ syntax, such as "causal() & window(3, 0)"; "all" without rules.
  std::string to_string() const;

  /// Throw InvalidArgument if the result would have more than kMaxMaskRules rules.
  friend FOVEA_API Mask operator&(const Mask& a, const Mask& b);
  friend FOVEA_API Mask operator|(const Mask& a, const Mask& b);
  friend Mask part_of(const Mask& mask, const PartSpan& part);
  friend FOVEA_API MaskRule rule_of(const Mask& mask);
  friend bool reads(const Mask& mask, const Memory& memory);

 private:
  std::shared_ptr<const Node> node_;
};

/// Key j is visible iff j <= i + offset. With the default alignment, q_len = 2, kv_len = 5 gives
///     1 1 1 1 0
///     1 1 1 1 1
/// and with q_len = 5, kv_len = 2 the first three rows see no key:
///     0 0
///     0 0
///     0 0
///     1 0
///     1 1
FOVEA_API Mask causal();

/// Key j is visible iff i + offset - left <= j <= i + offset + right; -1 means unbounded. Throws
/// InvalidArgument if `left` or `right` is less than -1.
FOVEA_API Mask window(std::int64_t left, std::int64_t right);

/// Key j is visible iff j < n. The mask of a prefix language model is `causal() | prefix(n)`.
/// Throws InvalidArgument if `n` is negative.
FOVEA_API Mask prefix(std::int64_t n);

/// A query sees the keys with the same document id. Ids are int64 [length], or [batch, length] if
/// batch items differ. For packed sequences, ids are packed in the same way. Other rules still use
/// positions in the whole sequence. To align them per document, q_len = kv_len is therefore
/// required: positions in the sequence and in the document then give the same result.
FOVEA_API Mask documents(const Tensor& query_ids, const Tensor& key_ids);

/// As above, with one array for queries and keys; requires q_len == kv_len.
FOVEA_API Mask documents(const Tensor& ids);

/// Key j of batch item (or packed sequence) b is visible iff j < lengths[b]; later keys are
/// padding. A single length applies to all items.
FOVEA_API Mask key_lengths(std::vector<std::int64_t> lengths);

/// Visibility from a bool tensor, true where visible. It is broadcast to [batch, q_heads, q_len,
/// kv_len] from the right: missing leading dimensions and extents of 1 repeat.
FOVEA_API Mask dense(TensorRef visible);

}  // namespace fovea
