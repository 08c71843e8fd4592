// SPDX-License-Identifier: Apache-2.0
//
// The implementation of Mask: a tree whose leaves are rules and whose inner nodes are `&` and `|`.

#include "fovea/mask.h"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "fovea/error.h"

#include "core/fail.h"
#include "problem/dense_mask.h"
#include "problem/document_ids.h"
#include "problem/key_interval.h"
#include "problem/mask_rules.h"
#include "problem/part.h"

namespace fovea {
// Not an anonymous namespace: Mask::Node has external linkage and has members of these types.
namespace mask_rules {

// Each rule implements visible(), classify(), key_range(), fill(), validate(), part() and
// to_string(). Arguments of classify() and fill() contain at least one score. key_range() may
// return any range with begin >= end to denote an empty one.

struct Causal : IntervalRule<Causal> {
  KeyInterval interval(const ScorePosition& row) const {
    return {.end = row.query + row.offset + 1};
  }
  void validate(const ProblemShape&, std::span<const std::int64_t>) const {}
  std::string to_string() const { return "causal()"; }
};

struct Window : IntervalRule<Window> {
  std::int64_t left;
  std::int64_t right;

  Window(std::int64_t left_keys, std::int64_t right_keys) : left(left_keys), right(right_keys) {}

  KeyInterval interval(const ScorePosition& row) const {
    const std::int64_t position = row.query + row.offset;
    KeyInterval seen;
    // If a bound would overflow, the interval is unbounded on that side.
    if (left >= 0 && position >= KeyInterval::kLowest + left) seen.begin = position - left;
    if (right >= 0 && position < KeyInterval::kHighest - right) seen.end = position + right + 1;
    return seen;
  }
  void validate(const ProblemShape&, std::span<const std::int64_t>) const {}
  std::string to_string() const { return fmt::format("window({}, {})", left, right); }
};

struct Prefix : IntervalRule<Prefix> {
  std::int64_t length;

  explicit Prefix(std::int64_t keys) : length(keys) {}

  KeyInterval interval(const ScorePosition&) const { return {.end = length}; }
  void validate(const ProblemShape&, std::span<const std::int64_t>) const {}
  Prefix part(const PartSpan& span) const {
    return Prefix(std::max<std::int64_t>(length - span.skipped_keys, 0));
  }
  std::string to_string() const { return fmt::format("prefix({})", length); }
};

struct KeyLengths : IntervalRule<KeyLengths> {
  std::vector<std::int64_t> lengths;

  explicit KeyLengths(std::vector<std::int64_t> all) : lengths(std::move(all)) {}

  std::int64_t length(std::int64_t item) const {
    return lengths.size() == 1 ? lengths[0] : lengths[static_cast<std::size_t>(item)];
  }
  KeyInterval interval(const ScorePosition& row) const { return {.end = length(row.batch)}; }
  void validate(const ProblemShape& shape, std::span<const std::int64_t> key_starts) const {
    if (lengths.size() != 1 && static_cast<std::int64_t>(lengths.size()) != shape.items()) {
      fail_argument("key_lengths", "expected 1 length or one per {} ({}), got {}",
                    shape.sequences > 0 ? "sequence" : "batch item", shape.items(), lengths.size());
    }
    const auto kv_len = [&](std::size_t item) { return key_starts[item + 1] - key_starts[item]; };
    if (lengths.size() > 1 && !key_starts.empty()) {
      for (std::size_t item = 0; item < lengths.size(); ++item) {
        if (fits(lengths[item], kv_len(item))) continue;
        refuse(lengths[item], fmt::format("{}, the keys of sequence {}", kv_len(item), item));
      }
      return;
    }
    // One length for all packed sequences. All keys of a shorter sequence are visible.
    if (!key_starts.empty()) {
      std::int64_t longest = 0;
      for (std::size_t item = 0; item + 1 < key_starts.size(); ++item) {
        longest = std::max(longest, kv_len(item));
      }
      if (fits(lengths[0], longest)) return;
      refuse(lengths[0], fmt::format("{}, the keys of the longest sequence", longest));
    }
    for (const std::int64_t one : lengths) {
      if (!fits(one, shape.kv_len)) refuse(one, fmt::format("kv_len = {}", shape.kv_len));
    }
  }
  KeyLengths part(const PartSpan& span) const {
    std::vector<std::int64_t> own = span.all_items() ? lengths : std::vector{length(span.item)};
    // A length shared by all sequences may exceed the key count of this one.
    for (std::int64_t& one : own) {
      one = std::clamp<std::int64_t>(one - span.skipped_keys, 0, span.keys);
    }
    return KeyLengths(std::move(own));
  }
  std::string to_string() const { return fmt::format("key_lengths({})", fmt::join(lengths, ", ")); }

 private:
  static bool fits(std::int64_t length, std::int64_t most) { return length >= 0 && length <= most; }
  [[noreturn]] static void refuse(std::int64_t length, const std::string& most) {
    fail_argument("key_lengths", "expected lengths from 0 to {}, got {}", most, length);
  }
};

struct Documents {
  DocumentIds queries;
  DocumentIds keys;

  std::int64_t query_id(const ScorePosition& at) const {
    return queries.row(at.batch)[static_cast<std::size_t>(at.query_start + at.query)];
  }
  bool visible(const ScorePosition& at) const {
    return query_id(at) == keys.row(at.batch)[static_cast<std::size_t>(at.key_start + at.key)];
  }
  Visibility classify(const ScoreBlock& block) const {
    const ScorePosition& first = block.first;
    const auto q = queries.bounds(first.batch, first.query_start + first.query, block.queries);
    const auto k = keys.bounds(first.batch, first.key_start + first.key, block.keys);
    if (q.most < k.least || k.most < q.least) return Visibility::kNone;
    // The ranges overlap. If each range contains a single id, the two ids are equal.
    return q.least == q.most && k.least == k.most ? Visibility::kAll : Visibility::kSome;
  }
  KeyRange key_range(const ScorePosition& first, std::int64_t count) const {
    const std::int64_t start = first.key_start + first.key;
    if (count == 0 || !keys.sorted(first.batch, start, count)) {
      return {first.key, first.key + count, false};
    }
    const auto ids = keys.row(first.batch)
                         .subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(count));
    const auto [begin, end] = std::equal_range(ids.begin(), ids.end(), query_id(first));
    return {first.key + (begin - ids.begin()), first.key + (end - ids.begin()), true};
  }
  void fill(const ScorePosition& first, std::int64_t count, std::uint8_t* visible) const {
    const std::int64_t own = query_id(first);
    const std::int64_t* const ids = keys.row(first.batch).data() + first.key_start + first.key;
    for (std::int64_t j = 0; j < count; ++j) visible[j] = ids[j] == own ? 1 : 0;
  }
  void validate(const ProblemShape& shape, std::span<const std::int64_t>) const {
    check(queries, "query ids", shape.batch, shape.q_len);
    check(keys, "key ids", shape.batch, shape.kv_len);
  }
  static void check(const DocumentIds& ids, const char* name, std::int64_t batch,
                    std::int64_t length) {
    const bool fits = ids.shape() == Shape{length} || ids.shape() == Shape{batch, length};
    if (!fits) {
      fail_argument("documents", "expected {} of shape [{}] or [{}, {}], got {}", name, length,
                    batch, length, fovea::to_string(ids.shape()));
    }
  }
  Documents part(const PartSpan& span) const {
    if (span.all_items()) {
      return {queries.cut(span.first_query, span.queries), keys.cut(span.first_key, span.keys)};
    }
    return {queries.cut(span.batch, span.first_query, span.queries),
            keys.cut(span.batch, span.first_key, span.keys)};
  }
  std::string to_string() const { return "documents(ids)"; }
};

struct Combined {
  bool both;  // `&`; otherwise `|`
  Mask a;
  Mask b;
  int rules;  // leaves of this subtree

  bool visible(const ScorePosition& at) const {
    return both ? a.visible(at) && b.visible(at) : a.visible(at) || b.visible(at);
  }
  Visibility classify(const ScoreBlock& block) const {
    const Visibility decisive = both ? Visibility::kNone : Visibility::kAll;
    const Visibility neutral = both ? Visibility::kAll : Visibility::kNone;
    const Visibility of_a = a.classify(block);
    if (of_a == decisive) return decisive;
    const Visibility of_b = b.classify(block);
    if (of_a == neutral || of_b == decisive) return of_b;
    return of_b == neutral ? of_a : Visibility::kSome;
  }
  KeyRange key_range(const ScorePosition& first, std::int64_t count) const {
    const KeyRange x = a.key_range(first, count);
    const KeyRange y = b.key_range(first, count);
    return both ? intersection(x, y) : hull(x, y);
  }
  void fill(const ScorePosition& first, std::int64_t count, std::uint8_t* visible) const {
    std::array<std::uint8_t, 256> of_b;
    ScorePosition at = first;
    for (std::int64_t done = 0; done < count; done += std::ssize(of_b)) {
      const std::int64_t chunk = std::min<std::int64_t>(count - done, std::ssize(of_b));
      at.key = first.key + done;
      std::uint8_t* const result = visible + done;
      a.fill(at, chunk, result);
      b.fill(at, chunk, of_b.data());
      if (both) {
        for (std::int64_t j = 0; j < chunk; ++j) result[j] &= of_b[static_cast<std::size_t>(j)];
      } else {
        for (std::int64_t j = 0; j < chunk; ++j) result[j] |= of_b[static_cast<std::size_t>(j)];
      }
    }
  }
  void validate(const ProblemShape& shape, std::span<const std::int64_t> key_starts) const {
    a.validate(shape, key_starts);
    b.validate(shape, key_starts);
  }
  Combined part(const PartSpan& span) const {
    return {both, part_of(a, span), part_of(b, span), rules};
  }
  std::string to_string() const {
    return both ? fmt::format("{} & {}", a.to_string(), b.to_string())
                : fmt::format("({} | {})", a.to_string(), b.to_string());
  }

 private:
  static KeyRange intersection(const KeyRange& x, const KeyRange& y) {
    return {std::max(x.begin, y.begin), std::min(x.end, y.end), x.exact && y.exact};
  }
  static KeyRange hull(const KeyRange& x, const KeyRange& y) {
    if (y.begin == y.end || covers(x, y)) return x;
    if (x.begin == x.end || covers(y, x)) return y;
    const bool gapless = x.begin <= y.end && y.begin <= x.end;
    return {std::min(x.begin, y.begin), std::max(x.end, y.end), gapless && x.exact && y.exact};
  }
  static bool covers(const KeyRange& x, const KeyRange& y) {
    return x.exact && x.begin <= y.begin && y.end <= x.end;
  }
};

}  // namespace mask_rules

using namespace mask_rules;

struct Mask::Node {
  std::variant<Causal, Window, Prefix, Documents, KeyLengths, DenseMask, Combined> rule;
};

namespace {

template <class Rule>
Mask make_mask(Rule rule) {
  return Mask(std::make_shared<const Mask::Node>(Mask::Node{std::move(rule)}));
}

int count_rules(const Mask::Node& node) {
  const auto* combined = std::get_if<Combined>(&node.rule);
  return combined == nullptr ? 1 : combined->rules;
}

Mask combine(bool both, const Mask& a, const Mask& b, const Mask::Node& node_a,
             const Mask::Node& node_b) {
  const int rules = count_rules(node_a) + count_rules(node_b);
  if (rules > kMaxMaskRules) {
    fail_argument("mask",
                  "expected at most {} rules, got more; many documents are one rule, and so "
                  "is any boolean tensor",
                  kMaxMaskRules);
  }
  return make_mask(Combined{both, a, b, rules});
}

}  // namespace

bool Mask::visible(const ScorePosition& at) const {
  if (!node_) return true;
  return std::visit([&](const auto& rule) { return rule.visible(at); }, node_->rule);
}

Visibility Mask::classify(const ScoreBlock& block) const {
  if (block.queries <= 0 || block.keys <= 0) return Visibility::kNone;
  if (!node_) return Visibility::kAll;
  return std::visit([&](const auto& rule) { return rule.classify(block); }, node_->rule);
}

KeyRange Mask::key_range(const ScorePosition& first, std::int64_t count) const {
  KeyRange range;
  key_ranges(first, count, {&range, 1});
  return range;
}

void Mask::key_ranges(const ScorePosition& first, std::int64_t count,
                      std::span<KeyRange> ranges) const {
  const auto for_each = [&](const auto& range_of) {
    ScorePosition at = first;
    for (KeyRange& range : ranges) {
      range = range_of(at);
      if (range.begin >= range.end) range = KeyRange{};
      ++at.query;
    }
  };
  if (!node_) {
    const KeyRange all{first.key, first.key + count, true};
    return for_each([&](const ScorePosition&) { return all; });
  }
  std::visit(
      [&](const auto& rule) {
        for_each([&](const ScorePosition& at) { return rule.key_range(at, count); });
      },
      node_->rule);
}

void Mask::fill(const ScorePosition& first, std::int64_t count, std::uint8_t* visible) const {
  if (count <= 0) return;
  if (!node_) {
    std::fill_n(visible, count, std::uint8_t{1});
    return;
  }
  std::visit([&](const auto& rule) { rule.fill(first, count, visible); }, node_->rule);
}

std::optional<std::int64_t> Mask::key_length(std::int64_t item) const {
  if (!node_) return std::nullopt;
  if (const auto* lengths = std::get_if<KeyLengths>(&node_->rule)) return lengths->length(item);
  const auto* combined = std::get_if<Combined>(&node_->rule);
  if (combined == nullptr || !combined->both) return std::nullopt;
  const auto a = combined->a.key_length(item);
  const auto b = combined->b.key_length(item);
  if (a && b) return std::min(*a, *b);
  return a ? a : b;
}

void Mask::validate(const ProblemShape& shape, std::span<const std::int64_t> key_starts) const {
  if (!node_) return;
  std::visit([&](const auto& rule) { rule.validate(shape, key_starts); }, node_->rule);
}

std::string Mask::to_string() const {
  if (!node_) return "all";
  return std::visit([](const auto& rule) { return rule.to_string(); }, node_->rule);
}

Mask part_of(const Mask& mask, const PartSpan& part) {
  if (!mask.node_) return {};
  return std::visit([&](const auto& rule) { return make_mask(rule.part(part)); }, mask.node_->rule);
}

MaskRule rule_of(const Mask& mask) {
  using Kind = MaskRule::Kind;
  struct Describe {
    MaskRule operator()(const Causal&) const { return {.kind = Kind::kCausal}; }
    MaskRule operator()(const Window& rule) const {
      return {.kind = Kind::kWindow, .numbers = {rule.left, rule.right}};
    }
    MaskRule operator()(const Prefix& rule) const {
      return {.kind = Kind::kPrefix, .numbers = {rule.length}};
    }
    MaskRule operator()(const Documents& rule) const {
      return {.kind = Kind::kDocuments,
              .query_ids = rule.queries.tensor(),
              .key_ids = rule.keys.tensor()};
    }
    MaskRule operator()(const KeyLengths& rule) const {
      return {.kind = Kind::kKeyLengths, .numbers = rule.lengths};
    }
    MaskRule operator()(const DenseMask& rule) const {
      return {.kind = Kind::kDense, .dense = rule.tensor()};
    }
    MaskRule operator()(const Combined& rule) const {
      return {.kind = rule.both ? Kind::kBoth : Kind::kEither, .operands = {rule.a, rule.b}};
    }
  };
  return mask.node_ ? std::visit(Describe{}, mask.node_->rule) : MaskRule{};
}

bool reads(const Mask& mask, const Memory& memory) {
  if (!mask.node_) return false;
  if (const auto* combined = std::get_if<Combined>(&mask.node_->rule)) {
    return reads(combined->a, memory) || reads(combined->b, memory);
  }
  const auto* dense = std::get_if<DenseMask>(&mask.node_->rule);
  return dense != nullptr && memory.overlaps(memory_of(dense->tensor(), "dense mask"));
}

Mask operator&(const Mask& a, const Mask& b) {
  if (a.allows_all()) return b;
  if (b.allows_all()) return a;
  return combine(true, a, b, *a.node_, *b.node_);
}

Mask operator|(const Mask& a, const Mask& b) {
  if (a.allows_all() || b.allows_all()) return Mask();
  return combine(false, a, b, *a.node_, *b.node_);
}

Mask causal() { return make_mask(Causal{}); }

Mask window(std::int64_t left, std::int64_t right) {
  if (left < -1 || right < -1) {
    fail_argument("window",
                  "expected left and right of 0 or more, or -1 for unbounded, got "
                  "({}, {})",
                  left, right);
  }
  return make_mask(Window(left, right));
}

Mask prefix(std::int64_t n) {
  if (n < 0) fail_argument("prefix", "expected 0 or more keys, got {}", n);
  return make_mask(Prefix(n));
}

Mask documents(const Tensor& query_ids, const Tensor& key_ids) {
  for (const Tensor* ids : {&query_ids, &key_ids}) {
    if (!ids->defined() || ids->dtype() != DType::kInt64) {
      fail_argument("documents", "expected int64 ids, got {}",
                    ids->defined() ? dtype_name(ids->dtype()) : "nothing");
    }
  }
  return make_mask(Documents{DocumentIds(query_ids), DocumentIds(key_ids)});
}

Mask documents(const Tensor& ids) { return documents(ids, ids); }

Mask key_lengths(std::vector<std::int64_t> lengths) {
  if (lengths.empty()) fail_argument("key_lengths", "expected at least 1 length, got none");
  return make_mask(KeyLengths(std::move(lengths)));
}

Mask dense(TensorRef visible) {
  if (!visible.defined() || visible->dtype() != DType::kBool) {
    fail_argument("dense mask",
                  "expected bool, true where visible, got {}; additive numbers are a "
                  "bias (ScoreOptions::bias)",
                  visible.defined() ? dtype_name(visible->dtype()) : "nothing");
  }
  return make_mask(DenseMask(std::move(visible)));
}

}  // namespace fovea
