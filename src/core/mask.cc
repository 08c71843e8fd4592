// SPDX-License-Identifier: Apache-2.0
//
// The rules behind Mask: a tree whose leaves are rules and whose inner nodes are `&` and `|`.

#include "fovea/mask.h"

#include <algorithm>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "fovea/error.h"

#include "core/broadcast.h"

namespace fovea {
namespace {

// Each rule answers visible(), validate() and to_string().

struct Causal {
  bool visible(const ScorePosition& at) const { return at.key <= at.query + at.offset; }
  void validate(const ProblemShape&) const {}
  std::string to_string() const { return "causal()"; }
};

struct Window {
  std::int64_t left;
  std::int64_t right;

  bool visible(const ScorePosition& at) const {
    // Compared as a distance, which cannot overflow however wide the window.
    const std::int64_t ahead = at.key - (at.query + at.offset);
    return (left < 0 || -ahead <= left) && (right < 0 || ahead <= right);
  }
  void validate(const ProblemShape&) const {}
  std::string to_string() const { return fmt::format("window({}, {})", left, right); }
};

struct Prefix {
  std::int64_t length;

  bool visible(const ScorePosition& at) const { return at.key < length; }
  void validate(const ProblemShape&) const {}
  std::string to_string() const { return fmt::format("prefix({})", length); }
};

struct Documents {
  Tensor query_ids;
  Tensor key_ids;

  static std::int64_t id(const Tensor& ids, std::int64_t batch, std::int64_t position) {
    return ids.rank() == 1 ? ids.at<std::int64_t>({position})
                           : ids.at<std::int64_t>({batch, position});
  }
  bool visible(const ScorePosition& at) const {
    return id(query_ids, at.batch, at.query) == id(key_ids, at.batch, at.key);
  }
  void validate(const ProblemShape& shape) const {
    check(query_ids, "query ids", shape.batch, shape.q_len);
    check(key_ids, "key ids", shape.batch, shape.kv_len);
  }
  static void check(const Tensor& ids, const char* name, std::int64_t batch, std::int64_t length) {
    const bool fits = ids.shape() == Shape{length} || ids.shape() == Shape{batch, length};
    if (!fits) {
      throw InvalidArgument(fmt::format("documents: expected {} of shape [{}] or [{}, {}], got {}",
                                        name, length, batch, length,
                                        fovea::to_string(ids.shape())));
    }
  }
  std::string to_string() const { return "documents(ids)"; }
};

struct KeyLengths {
  std::vector<std::int64_t> lengths;

  std::int64_t length(std::int64_t batch) const {
    return lengths.size() == 1 ? lengths[0] : lengths[static_cast<std::size_t>(batch)];
  }
  bool visible(const ScorePosition& at) const { return at.key < length(at.batch); }
  void validate(const ProblemShape& shape) const {
    if (lengths.size() != 1 && static_cast<std::int64_t>(lengths.size()) != shape.batch) {
      throw InvalidArgument(
          fmt::format("key_lengths: expected 1 length or one per batch item ({}), got {}",
                      shape.batch, lengths.size()));
    }
    for (const std::int64_t one : lengths) {
      if (one < 0 || one > shape.kv_len) {
        throw InvalidArgument(fmt::format(
            "key_lengths: expected lengths from 0 to kv_len = {}, got {}", shape.kv_len, one));
      }
    }
  }
  std::string to_string() const { return fmt::format("key_lengths({})", fmt::join(lengths, ", ")); }
};

struct Dense {
  TensorRef tensor;

  bool visible(const ScorePosition& at) const { return broadcast_value(tensor, at) != 0.0; }
  void validate(const ProblemShape& shape) const {
    validate_broadcast(tensor, shape, "dense mask");
  }
  std::string to_string() const {
    return fmt::format("dense({})", fovea::to_string(tensor->shape()));
  }
};

struct Combined {
  bool both;  // `&`; otherwise `|`
  Mask a;
  Mask b;
  int rules;  // in all of it

  bool visible(const ScorePosition& at) const {
    return both ? a.visible(at) && b.visible(at) : a.visible(at) || b.visible(at);
  }
  void validate(const ProblemShape& shape) const {
    a.validate(shape);
    b.validate(shape);
  }
  std::string to_string() const {
    return both ? fmt::format("{} & {}", a.to_string(), b.to_string())
                : fmt::format("({} | {})", a.to_string(), b.to_string());
  }
};

}  // namespace

struct Mask::Node {
  std::variant<Causal, Window, Prefix, Documents, KeyLengths, Dense, Combined> rule;
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
    throw InvalidArgument(fmt::format(
        "mask: expected at most {} rules, got more; many documents are one rule, and so "
        "is any boolean tensor",
        kMaxMaskRules));
  }
  return make_mask(Combined{both, a, b, rules});
}

}  // namespace

bool Mask::visible(const ScorePosition& at) const {
  if (!node_) return true;
  return std::visit([&](const auto& rule) { return rule.visible(at); }, node_->rule);
}

std::optional<std::int64_t> Mask::key_length(std::int64_t batch) const {
  if (!node_) return std::nullopt;
  if (const auto* lengths = std::get_if<KeyLengths>(&node_->rule)) return lengths->length(batch);
  const auto* combined = std::get_if<Combined>(&node_->rule);
  if (combined == nullptr || !combined->both) return std::nullopt;
  const auto a = combined->a.key_length(batch);
  const auto b = combined->b.key_length(batch);
  if (a && b) return std::min(*a, *b);
  return a ? a : b;
}

void Mask::validate(const ProblemShape& shape) const {
  if (!node_) return;
  std::visit([&](const auto& rule) { rule.validate(shape); }, node_->rule);
}

std::string Mask::to_string() const {
  if (!node_) return "all";
  return std::visit([](const auto& rule) { return rule.to_string(); }, node_->rule);
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
    throw InvalidArgument(
        fmt::format("window: expected left and right of 0 or more, or -1 for unbounded, got "
                    "({}, {})",
                    left, right));
  }
  return make_mask(Window{left, right});
}

Mask prefix(std::int64_t n) {
  if (n < 0) throw InvalidArgument(fmt::format("prefix: expected 0 or more keys, got {}", n));
  return make_mask(Prefix{n});
}

Mask documents(Tensor query_ids, Tensor key_ids) {
  for (const Tensor* ids : {&query_ids, &key_ids}) {
    if (!ids->defined() || ids->dtype() != DType::kInt64) {
      throw InvalidArgument(fmt::format("documents: expected int64 ids, got {}",
                                        ids->defined() ? dtype_name(ids->dtype()) : "nothing"));
    }
  }
  return make_mask(Documents{std::move(query_ids), std::move(key_ids)});
}

Mask documents(Tensor ids) {
  Tensor copy = ids;
  return documents(std::move(copy), std::move(ids));
}

Mask key_lengths(std::vector<std::int64_t> lengths) {
  if (lengths.empty()) throw InvalidArgument("key_lengths: expected at least 1 length, got none");
  return make_mask(KeyLengths{std::move(lengths)});
}

Mask dense(TensorRef visible) {
  if (!visible.defined() || visible->dtype() != DType::kBool) {
    throw InvalidArgument(
        fmt::format("dense mask: expected bool, true where visible, got {}; additive numbers are a "
                    "bias (ScoreOptions::bias)",
                    visible.defined() ? dtype_name(visible->dtype()) : "nothing"));
  }
  return make_mask(Dense{std::move(visible)});
}

}  // namespace fovea
