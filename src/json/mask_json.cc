// SPDX-License-Identifier: Apache-2.0
//
// Masks and alignment in JSON (mask_json.h).

#include "json/mask_json.h"

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "problem/mask_rules.h"

namespace fovea::scene {
namespace {

Mask parse_documents(const JsonNode& node, const ProblemShape& shape) {
  Mask mask;
  if (node.is_object()) {
    node.require_object({"query", "key"});
    const auto query = node.find("query");
    const auto key = node.find("key");
    if (!query || !key) node.fail("expected both \"query\" and \"key\", got only one");
    mask = documents(query->whole_numbers(1, 2), key->whole_numbers(1, 2));
  } else {
    mask = documents(node.whole_numbers(1, 2));
  }
  at_place(node, [&] { mask.validate(shape); });
  return mask;
}

}  // namespace

Mask parse_mask(const JsonNode& node, const ProblemShape& shape, std::int64_t most) {
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
    } else {
      lengths = {rule->integer(0, most)};
    }
    mask = mask & checked(*rule, [&] { return key_lengths(lengths); });
  }
  if (const auto rule = node.find("documents")) mask = mask & parse_documents(*rule, shape);
  if (const auto rule = node.find("dense")) {
    mask = mask & checked(*rule, [&] { return dense(rule->booleans(1, 4)); });
  }
  for (const char* key : {"all", "any"}) {
    const auto rules = node.find(key);
    if (!rules) continue;
    const auto parts = rules->array("an array of masks");
    if (parts.empty()) rules->fail("expected at least one mask, got none");
    Mask joined = parse_mask(parts[0], shape, most);
    for (std::size_t i = 1; i < parts.size(); ++i) {
      const Mask part = parse_mask(parts[i], shape, most);
      joined = std::string_view(key) == "all" ? joined & part : joined | part;
    }
    mask = mask & joined;
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

}  // namespace fovea::scene
