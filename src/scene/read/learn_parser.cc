// SPDX-License-Identifier: Apache-2.0
//
// Parses "learn", the target weights of queries: {"one": {"journey": 0.9}}. Words are named as in
// `fovea explain --query` (scene_parser.h).

#include <algorithm>

#include <fmt/format.h>

#include "fovea/error.h"

#include "scene/read/scene_parser.h"
#include "scene/read/scene_parts.h"

namespace fovea::scene {
namespace {

/// Returns the result of `find`. If `find` throws, the path of `node` is prepended to the message.
template <class Find>
auto found_at(const JsonNode& node, Find&& find) {
  try {
    return find();
  } catch (const InvalidArgument& error) {
    node.fail(error.what());
  }
}

/// Throws if there is already a wish for the same word. A word has two names: its text and its
/// index.
template <class Same>
void refuse_twice(const JsonNode& node, const std::vector<Wish>& wishes, const char* what,
                  Same&& same) {
  const auto before = std::ranges::find_if(wishes, same);
  if (before != wishes.end()) {
    node.fail(fmt::format("expected each {} once, got the one of {} again", what, before->place));
  }
}

void parse_keys(const JsonNode& node, const Focus& query, const Scene& scene,
                std::vector<Wish>& wishes) {
  const auto keys = node.members();
  if (keys.empty()) node.fail("expected at least one key to look at, got none");
  double sum = 0.0;
  for (const auto& [name, given] : keys) {
    // A separate variable, because Clang 14 cannot capture structured bindings in lambdas.
    const std::string& key_name = name;
    Wish wish{query.item, query.index, 0, 0.0, given.place()};
    wish.key = found_at(given, [&] { return find_key(scene, query.item, key_name); });
    refuse_twice(given, wishes, "key", [&](const Wish& other) {
      return other.item == wish.item && other.query == wish.query && other.key == wish.key;
    });
    wish.weight = given.number();
    if (!(wish.weight >= 0.0 && wish.weight <= 1.0)) given.expected("a number from 0 to 1");
    sum += wish.weight;
    wishes.push_back(std::move(wish));
  }
  constexpr double kRounding = 1e-9;  // tolerance for a sum that should be 1
  if (sum > 1.0 + kRounding) {
    node.fail(fmt::format("expected weights that add up to at most 1, got {}", sum));
  }
}

}  // namespace

std::vector<Wish> parse_learn(const JsonNode& node, const Scene& scene) {
  std::vector<Wish> wishes;
  const auto queries = node.members();
  if (queries.empty()) node.fail("expected at least one query, got none");
  for (const auto& [name, keys] : queries) {
    const std::string& query_name = name;
    const Focus query = found_at(keys, [&] { return find_query(scene, query_name); });
    refuse_twice(keys, wishes, "query", [&](const Wish& other) {
      return other.item == query.item && other.query == query.index;
    });
    parse_keys(keys, query, scene, wishes);
  }
  return wishes;
}

}  // namespace fovea::scene
