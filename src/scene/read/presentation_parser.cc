// SPDX-License-Identifier: Apache-2.0
//
// Parses what is shown and asked of a scene (scene_parser.h).

#include <algorithm>

#include <fmt/format.h>

#include "fovea/error.h"

#include "scene/read/scene_parser.h"
#include "scene/read/scene_parts.h"
#include "scene/read/step_catalogue.h"
#include "text/nearest.h"
#include "text/text_width.h"

namespace fovea::scene {
namespace {

void parse_normalizations(const JsonNode& root, Scene& scene) {
  const auto node = root.find("normalizations");
  if (!node) {
    scene.normalizations = {reference::Normalization::kSoftmax};
    return;
  }
  std::vector<std::string> names = normalization_names();
  names.emplace_back(kNaive);
  for (const JsonNode& item : node->array("an array of normalizations")) {
    const std::size_t choice = item.choice(names);
    const auto kind = choice < normalization_names().size()
                          ? static_cast<reference::Normalization>(choice)
                          : reference::Normalization::kSoftmaxUnshifted;
    const auto& given = scene.normalizations;
    if (std::find(given.begin(), given.end(), kind) != given.end()) {
      item.fail(fmt::format("expected each normalization once, got \"{}\" again", names[choice]));
    }
    if (kind == reference::Normalization::kSum && !scene.options.score.sinks.empty()) {
      item.fail("expected no division by the sum beside sinks: a sink is a logit");
    }
    scene.normalizations.push_back(kind);
  }
  if (scene.normalizations.empty()) node->fail("expected at least one, got none");
}

/// Returns an index from 0 to `count` - 1; a negative one counts from the end.
std::int64_t parse_position(const JsonNode& node, std::int64_t count) {
  const std::int64_t position = node.integer(-count, count - 1);
  return position < 0 ? position + count : position;
}

void parse_focus(const JsonNode& root, Scene& scene) {
  const auto node = root.find("focus");
  scene.focus = Focus{};
  if (!node) return;
  const std::int64_t length = scene.words.length();
  if (node->is_null()) {
    scene.focus.reset();
  } else if (node->is_string()) {
    try {
      scene.focus = find_word(scene, node->string());
    } catch (const InvalidArgument& error) {
      node->fail(error.what());
    }
  } else if (node->is_array()) {
    const auto batch = static_cast<std::int64_t>(scene.words.tokens.size());
    const auto pair = node->array();
    if (pair.size() != 2) node->expected("[batch item, token]");
    scene.focus = Focus{parse_position(pair[0], batch), parse_position(pair[1], length)};
  } else {
    if (!node->is_integer()) node->expected("a word, its index, [batch item, token], or null");
    scene.focus = Focus{0, parse_position(*node, length)};
  }
}

void parse_notes(const JsonNode& node, Scene& scene) {
  std::vector<std::string> names = all_step_names();
  names.emplace_back("scene");
  for (const auto& [name, note] : node.members()) {
    const std::string step = canonical_name(name);
    if (std::find(names.begin(), names.end(), step) == names.end()) {
      note.fail(fmt::format("expected the name of a step, or \"scene\", got \"{}\"{}",
                            visible(name), did_you_mean(name, names)));
    }
    scene.notes.emplace_back(step, note.string());
  }
}

}  // namespace

void parse_presentation(const JsonNode& root, Scene& scene) {
  parse_normalizations(root, scene);
  if (const auto dtype = root.find("dtype")) {
    scene.arithmetic =
        dtype->choice({"float64", "float32"}) == 0 ? DType::kFloat64 : DType::kFloat32;
  }
  if (const auto precision = root.find("precision")) {
    scene.precision = static_cast<int>(precision->integer(0, kMaxDecimals));
  }
  parse_focus(root, scene);
  if (const auto notes = root.find("notes")) parse_notes(*notes, scene);
  if (const auto expect = root.find("expect")) {
    for (const JsonNode& item : expect->array("an array of expectations")) {
      scene.expect.push_back(parse_expectation(item));
    }
  }
  if (const auto questions = root.find("questions")) {
    for (const JsonNode& item : questions->array("an array of questions")) {
      scene.questions.push_back(parse_question(item));
    }
  }
}

}  // namespace fovea::scene
