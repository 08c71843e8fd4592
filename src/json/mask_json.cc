// SPDX-License-Identifier: Apache-2.0
//
// Masks and alignment in JSON (mask_json.h).

#include "json/mask_json.h"

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "problem/mask_rules.h"

namespace fovea::scene {
namespace {

constexpr int kDeepestOperators = 8;  // two levels of JSON each, of the 32 that are read

/// Returns whole numbers with 1 to `most` dimensions from the text or from a tensor.
Tensor parse_ids(const JsonNode& node, int most, const TensorLookup& tensors) {
  if (!tensors || !node.is_string()) return node.whole_numbers(1, most);
  Tensor ids;
  at_place(node, [&] {
    const TensorRef found = tensors(node.string());
    if (found->dtype() != DType::kInt64 || found->rank() < 1 || found->rank() > most) {
      fail("numbers: expected a tensor of whole numbers with {}, got {} {}",
           most == 1 ? "1 dimension" : fmt::format("1 to {} dimensions", most),
           dtype_name(found->dtype()), to_string(found->shape()));
    }
    ids = Tensor(found.view());
  });
  return ids;
}

Mask parse_documents(const JsonNode& node, const ProblemShape& shape, const TensorLookup& tensors) {
  Mask mask;
  if (node.is_object()) {
    node.require_object({"query", "key"});
    const auto query = node.find("query");
    const auto key = node.find("key");
    if (!query || !key) node.fail("expected both \"query\" and \"key\", got only one");
    mask = documents(parse_ids(*query, 2, tensors), parse_ids(*key, 2, tensors));
  } else {
    mask = documents(parse_ids(node, 2, tensors));
  }
  at_place(node, [&] { mask.validate(shape); });
  return mask;
}

}  // namespace

Mask parse_mask(const JsonNode& node, const ProblemShape& shape, std::int64_t most,
                const TensorLookup& tensors) {
  if (node.is_string()) {
    return node.choice({"none", "causal"}) == 0 ? Mask() : causal();
  }
  if (!node.is_object()) node.expected("\"none\", \"causal\" or an object of rules");
  node.require_object(
      {"causal", "window", "prefix", "key_lengths", "documents", "dense", "all", "any"});
  // Rules that depend on the problem shape are built and validated in one step.
  const auto checked = [&](const JsonNode& rule, const std::function<Mask()>& make) {
    Mask made;
    at_place(rule, [&] {
      made = make();
      made.validate(shape);
    });
    return made;
  };
  const auto is_causal = node.find("causal");
  const bool causally = is_causal && is_causal->boolean();
  std::optional<std::int64_t> prefix_keys;
  if (const auto rule = node.find("prefix")) prefix_keys = rule->integer(0, most);
  Mask mask = causal_or_prefix(causally, prefix_keys);
  if (const auto rule = node.find("window")) {
    const auto sides = rule->integers(-1, most);
    if (sides.size() != 2) rule->expected("[left, right]");
    mask = mask & window(sides[0], sides[1]);
  }
  if (const auto rule = node.find("key_lengths")) {
    std::vector<std::int64_t> lengths;
    if (rule->is_array()) {
      lengths = rule->integers(0, most);
    } else if (tensors && rule->is_string()) {
      const Tensor listed = parse_ids(*rule, 1, tensors);
      lengths.assign(listed.span<std::int64_t>().begin(), listed.span<std::int64_t>().end());
    } else {
      lengths = {rule->integer(0, most)};
    }
    mask = mask & checked(*rule, [&] { return key_lengths(lengths); });
  }
  if (const auto rule = node.find("documents")) {
    mask = mask & parse_documents(*rule, shape, tensors);
  }
  if (const auto rule = node.find("dense")) {
    mask = mask & checked(*rule, [&] {
             const bool named = tensors && rule->is_string();
             return dense(named ? tensors(rule->string()) : rule->booleans(1, 4));
           });
  }
  for (const char* key : {"all", "any"}) {
    const auto rules = node.find(key);
    if (!rules) continue;
    const auto parts = rules->array("an array of masks");
    if (parts.empty()) rules->fail("expected at least one mask, got none");
    Mask joined = parse_mask(parts[0], shape, most, tensors);
    for (std::size_t i = 1; i < parts.size(); ++i) {
      const Mask part = parse_mask(parts[i], shape, most, tensors);
      at_place(*rules,
               [&] { joined = std::string_view(key) == "all" ? joined & part : joined | part; });
    }
    at_place(*rules, [&] { mask = mask & joined; });
  }
  return mask;
}

Alignment parse_alignment(const JsonNode& node, const ProblemShape& shape) {
  constexpr std::int64_t kFar = std::int64_t{1} << 40;
  if (node.is_string()) {
    const std::size_t choice = node.choice({"bottom-right", "top-left"});
    return choice == 0 ? Alignment::bottom_right() : Alignment::top_left();
  }
  if (node.is_array()) {
    AttentionOptions options;
    options.alignment = Alignment::offsets(node.integers(-kFar, kFar));
    at_place(node, [&] { validate(options, shape); });
    return options.alignment;
  }
  if (!node.is_number()) {
    node.expected("\"bottom-right\", \"top-left\", a whole number, or one per batch item");
  }
  return Alignment::offset(node.integer(-kFar, kFar));
}

Json mask_json(const Mask& mask, const TensorNaming& name) {
  using Kind = MaskRule::Kind;
  const auto tensor = [&](const char* what, const TensorRef& numbers) {
    return Json{{what, name(what, numbers)}};
  };
  // Appends the operands of a chain of one operator to `parts`.
  const auto collect = [](const auto& self, const Mask& operand, Kind kind,
                          std::vector<Mask>& parts) -> void {
    const MaskRule rule = rule_of(operand);
    if (rule.kind != kind) return parts.push_back(operand);
    for (const Mask& each : rule.operands) self(self, each, kind, parts);
  };
  const auto write = [&](const auto& self, const Mask& part, int depth) -> Json {
    const MaskRule rule = rule_of(part);
    switch (rule.kind) {
      case Kind::kNothing:
        return "none";
      case Kind::kCausal:
        return {{"causal", true}};
      case Kind::kWindow:
        return {{"window", rule.numbers}};
      case Kind::kPrefix:
        return {{"prefix", rule.numbers.front()}};
      case Kind::kDocuments: {
        const std::string query = name("documents", rule.query_ids);
        const std::string key = name("documents", rule.key_ids);
        if (query == key) return {{"documents", query}};
        return {{"documents", {{"query", query}, {"key", key}}}};
      }
      case Kind::kKeyLengths:
        if (rule.numbers.size() <= kMaxNumbersAsText) return {{"key_lengths", rule.numbers}};
        return tensor("key_lengths",
                      Tensor::from({static_cast<std::int64_t>(rule.numbers.size())}, rule.numbers));
      case Kind::kDense:
        return tensor("dense", rule.dense);
      case Kind::kBoth:
      case Kind::kEither:
        break;
    }
    if (depth == kDeepestOperators) {
      fail_argument("mask", "expected operators nested at most {} deep, got more", depth);
    }
    std::vector<Mask> parts;
    collect(collect, part, rule.kind, parts);
    Json written = Json::array();
    for (const Mask& each : parts) written.push_back(self(self, each, depth + 1));
    return {{rule.kind == Kind::kBoth ? "all" : "any", std::move(written)}};
  };
  return write(write, mask, 0);
}

Json alignment_json(const Alignment& alignment) {
  if (alignment.is_bottom_right()) return "bottom-right";
  const std::vector<std::int64_t>& offsets = alignment.values();
  if (offsets.size() > 1) return offsets;
  return offsets.front() == 0 ? Json("top-left") : Json(offsets.front());
}

}  // namespace fovea::scene
