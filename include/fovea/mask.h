// SPDX-License-Identifier: Apache-2.0
//
// Masks as rules: which query may see which key, said without an N x N tensor. Rules combine with
// `&` (both must allow) and `|` (either may allow).

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fovea/tensor.h"

namespace fovea {

/// A mask joins at most this many rules.
inline constexpr int kMaxMaskRules = 64;

/// One score's place. `offset` is the alignment: query i stands at position i + offset among the
/// keys (AttentionOptions::alignment).
struct ScorePosition {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t query = 0;
  std::int64_t key = 0;
  std::int64_t offset = 0;
};

/// The extents that a problem's options are checked against.
struct ProblemShape {
  std::int64_t batch = 1;
  std::int64_t q_heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
};

/// A rule, or rules combined. Cheap to copy; immutable. A default-constructed mask lets every query
/// see every key.
class Mask {
 public:
  struct Node;

  Mask() = default;
  explicit Mask(std::shared_ptr<const Node> node) : node_(std::move(node)) {}

  /// Whether the query may see the key.
  bool visible(const ScorePosition& at) const;

  /// True when there is no rule at all.
  bool allows_all() const { return node_ == nullptr; }

  /// The number of real keys of a batch item, when key_lengths() is joined to the rest by `&` only;
  /// the default alignment counts from there.
  std::optional<std::int64_t> key_length(std::int64_t batch) const;

  /// Throws InvalidArgument when a rule does not fit the problem, naming the rule.
  void validate(const ProblemShape& shape) const;

  /// The rules as they are written in C++: "causal() & window(3, 0)"; "all" without a rule.
  std::string to_string() const;

  /// Throw InvalidArgument beyond kMaxMaskRules rules.
  friend Mask operator&(const Mask& a, const Mask& b);
  friend Mask operator|(const Mask& a, const Mask& b);

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
Mask causal();

/// Key j is visible iff i + offset - left <= j <= i + offset + right; -1 means unbounded.
/// Throws InvalidArgument for less than -1.
Mask window(std::int64_t left, std::int64_t right);

/// Key j is visible iff j < n. A prefix language model is `causal() | prefix(n)`.
/// Throws InvalidArgument for a negative n.
Mask prefix(std::int64_t n);

/// A query sees the keys of its own document. int64 ids, [length], or [batch, length] when the
/// batch items differ. Other rules keep counting positions in the whole sequence: an alignment per
/// document needs q_len = kv_len, where both are the same.
Mask documents(Tensor query_ids, Tensor key_ids);

/// The same with one array, where q_len == kv_len.
Mask documents(Tensor ids);

/// Key j of batch item b is visible iff j < lengths[b]; the rest is padding. One length serves all.
Mask key_lengths(std::vector<std::int64_t> lengths);

/// True where visible; bool, broadcast to [batch, q_heads, q_len, kv_len] from the right: missing
/// leading dimensions and extents of 1 repeat.
Mask dense(TensorRef visible);

}  // namespace fovea
