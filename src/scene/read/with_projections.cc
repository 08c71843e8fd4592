// SPDX-License-Identifier: Apache-2.0
//
// Replaces the projections of a scene and rewrites its JSON for further editing: the author's keys
// keep their order, and every matrix row has its own line.

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

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

Json matrix_json(const Tensor& matrix, const char* name) {
  Json rows = Json::array();
  for (std::int64_t i = 0; i < matrix.extent(0); ++i) {
    Json row = Json::array();
    for (std::int64_t j = 0; j < matrix.extent(1); ++j) {
      const double number = matrix.value({i, j});
      if (!std::isfinite(number)) {
        fail("projections.{}: expected finite numbers, got {} at {}", name, number,
             to_string({i, j}));
      }
      row.push_back(number);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

Scene with_projections(const Scene& scene, const Projections& projections) {
  const Json json = Json::parse(scene.json, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    throw InvalidArgument("scene: expected the JSON that it was read from, got none");
  }
  const Json matrices = {{"query", matrix_json(projections.query, "query")},
                         {"key", matrix_json(projections.key, "key")},
                         {"value", matrix_json(projections.value, "value")}};
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
