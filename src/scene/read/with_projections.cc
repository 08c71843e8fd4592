// SPDX-License-Identifier: Apache-2.0
//
// Replaces the projections of a scene and rewrites its JSON for further editing: the author's keys
// keep their order, and every matrix row has its own line.

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fovea/error.h"
#include "fovea/scene.h"

#include "core/fail.h"
#include "json/json_reader.h"

namespace fovea::scene {
namespace {

constexpr std::size_t kShort = 80;  // maximum length of an object on one line

bool has_array(const Json& value) {
  return value.is_array() ||
         (value.is_object() && std::any_of(value.begin(), value.end(), has_array));
}

bool fits_one_line(const Json& value) {
  if (value.is_array()) {
    return std::none_of(value.begin(), value.end(),
                        [](const Json& part) { return part.is_structured(); });
  }
  return !value.is_object() || (!has_array(value) && value.dump().size() <= kShort);
}

void append_json(std::string& out, const Json& value, const std::string& indent) {
  if (!value.is_structured()) {
    out += value.dump();
    return;
  }
  const bool one_line = fits_one_line(value);
  out += value.is_array() ? '[' : '{';
  bool first = true;
  for (const auto& [key, part] : value.items()) {
    if (!first) out += one_line ? ", " : ",";
    first = false;
    if (!one_line) out += "\n" + indent + "  ";
    if (value.is_object()) out += Json(key).dump() + ": ";
    append_json(out, part, indent + "  ");
  }
  if (!one_line) out += "\n" + indent;
  out += value.is_array() ? ']' : '}';
}

Json numbers_json(const TensorView& numbers, const std::string& place) {
  if (numbers.rank() == 0) {
    const double number = numbers.value({});
    if (!std::isfinite(number)) fail("{}: expected a finite number, got {}", place, number);
    return number;
  }
  Json rows = Json::array();
  for (std::int64_t i = 0; i < numbers.extent(0); ++i) {
    rows.push_back(numbers_json(numbers[i], fmt::format("{}[{}]", place, i)));
  }
  return rows;
}

/// Replaces drawings of words and embeddings by what was drawn.
void write_drawn(Json& part, const Sequence& sequence) {
  if (const auto tokens = part.find("tokens"); tokens != part.end() && tokens->is_object()) {
    *tokens = Json::array();
    for (const std::string& token : sequence.tokens.front()) tokens->push_back(Json::parse(token));
  }
  if (!part["embeddings"].is_object()) return;
  const bool batched = part.contains("tokens") && part["tokens"][0].is_array();
  const TensorView numbers = sequence.embeddings;
  part["embeddings"] = numbers_json(batched ? numbers : numbers[0], "embeddings");
}

/// Replaces drawings of the score's weights by what was drawn.
void write_drawn(Json& score, const reference::ScoreKind& kind) {
  const auto write = [&](const char* name, const TensorView& numbers) {
    if (score[name].is_object()) score[name] = numbers_json(numbers, name);
  };
  if (const auto* general = std::get_if<reference::GeneralScore>(&kind)) {
    write("weights", general->weights);
  } else if (const auto* additive = std::get_if<reference::AdditiveScore>(&kind)) {
    write("query_weights", additive->query_weights);
    write("key_weights", additive->key_weights);
    write("v", additive->v);
  }
}

}  // namespace

Scene with_projections(const Scene& scene, const Projections& projections) {
  if (scene.direct) {
    throw InvalidArgument("scene: expected embeddings to project, got queries, keys and values");
  }
  for (const auto& [matrix, name] : {std::pair{&projections.query, "query"},
                                     {&projections.key, "key"},
                                     {&projections.value, "value"}}) {
    if (!matrix->defined()) {
      throw InvalidArgument(fmt::format("projections.{}: expected a matrix, got none", name));
    }
  }
  Json json = Json::parse(scene.json, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    throw InvalidArgument("scene: expected the JSON that it was read from, got none");
  }
  // Arrays that were drawn after the projections would get other numbers without them.
  if (json.erase("order") > 0) {
    write_drawn(json, scene.words);
    if (scene.source) write_drawn(json["source"], *scene.source);
  }
  if (json.contains("score")) write_drawn(json["score"], scene.score_kind);
  const Json matrices = {{"query", numbers_json(projections.query, "projections.query")},
                         {"key", numbers_json(projections.key, "projections.key")},
                         {"value", numbers_json(projections.value, "projections.value")}};
  // Existing projections are replaced in place; new ones follow the inputs that they project.
  const std::string_view before = json.contains("projections") ? "projections"
                                  : json.contains("source")    ? "source"
                                                               : "embeddings";
  Json result = Json::object();
  for (const auto& [key, part] : json.items()) {
    if (key != "projections" && key != "expect") result[key] = part;
    if (key == before) result["projections"] = matrices;
  }
  std::string text;
  append_json(text, result, "");
  Scene read = parse_scene(text + "\n");
  Scene changed = scene;
  changed.projections = std::move(read.projections);
  changed.expect.clear();
  changed.json = std::move(read.json);
  return changed;
}

}  // namespace fovea::scene
