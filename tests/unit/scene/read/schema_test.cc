// SPDX-License-Identifier: Apache-2.0
//
// docs/scene.schema.json and the parser agree: every object has the same keys in both, and the
// parser accepts the valid scenes of tests/data/scene_schema_cases.json and rejects the invalid
// ones. tests/docs/schema_test.py validates the same scenes against the schema.

#include "support/schema.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fovea/error.h"
#include "fovea/scene.h"

#include "support/files.h"

namespace {

using fovea::test::example_scenes;
using fovea::test::listed_keys;
using fovea::test::property_names;
using fovea::test::read_file;

using nlohmann::json;

const json& schema_json() {
  static const json schema = fovea::test::read_schema("scene.schema.json");
  return schema;
}

/// Returns valid and invalid scenes, with their keys in the order of the file.
const nlohmann::ordered_json& cases() {
  static const auto parsed = nlohmann::ordered_json::parse(
      read_file(std::filesystem::path(FOVEA_TEST_DATA) / "scene_schema_cases.json"));
  return parsed;
}

/// Returns the parser's error message for a scene, or an empty string if it is valid.
std::string parser_complaint(const std::string& text) {
  try {
    fovea::scene::parse_scene(text);
  } catch (const fovea::InvalidArgument& error) {
    return error.what();
  }
  return "";
}

/// Returns a scene of two tokens with two numbers each, and the given members.
std::string scene_with(const std::string& members) {
  return R"({"tokens": ["a", "b"], "embeddings": [[1, 0], [0, 1]], )" + members + "}";
}

TEST(SceneSchema, AllExamplesReferenceIt) {
  int count = 0;
  for (const auto& path : example_scenes()) {
    ++count;
    const json scene = json::parse(read_file(path));
    EXPECT_EQ(scene.at("$schema"), "../../docs/scene.schema.json") << path;
  }
  EXPECT_GE(count, 11);
}

TEST(SceneSchema, ValidScenesAreAccepted) {
  EXPECT_GE(cases().at("right").size(), 70U);
  for (const auto& scene : cases().at("right")) {
    EXPECT_EQ(parser_complaint(scene.dump()), "") << scene;
  }
}

TEST(SceneSchema, InvalidScenesAreRejected) {
  EXPECT_GE(cases().at("wrong").size(), 164U);
  for (const auto& wrong : cases().at("wrong")) {
    const auto& scene = wrong.at("scene");
    EXPECT_NE(parser_complaint(scene.dump()), "") << wrong.at("why") << "\n" << scene;
  }
}

/// Returns the keys that the parser lists in its error for an unknown key.
std::set<std::string> parser_keys(const std::string& text) {
  return listed_keys(parser_complaint(text));
}

TEST(SceneSchema, ObjectKeysMatchTheParser) {
  EXPECT_EQ(property_names(schema_json()), parser_keys(R"({"zzz": 1})"));
  const std::vector<std::pair<std::string, std::string>> objects = {
      {"source", scene_with(R"("source": {"zzz": 1})")},
      {"drawing", scene_with(R"("projections": {"query": {"zzz": 1}})")},
      {"embeddings_drawing", R"({"tokens": ["a"], "embeddings": {"zzz": 1}})"},
      {"tokens_drawing", R"({"tokens": {"zzz": 1}})"},
      {"projections", scene_with(R"("projections": {"zzz": 1})")},
      {"score", scene_with(R"("score": {"zzz": 1})")},
      {"relative", scene_with(R"("score": {"relative": {"zzz": 1}})")},
      {"mask", scene_with(R"("mask": {"zzz": 1})")},
      {"documents", scene_with(R"("mask": {"documents": {"zzz": 1}})")},
      {"expectation", scene_with(R"("expect": [{"zzz": 1}])")},
      {"question", scene_with(R"("questions": [{"zzz": 1}])")},
  };
  for (const auto& [name, text] : objects) {
    EXPECT_EQ(property_names(schema_json().at("definitions").at(name)), parser_keys(text)) << name;
  }
}

TEST(SceneSchema, EveryKeyHasATitle) {
  const auto explained = [](const json& object, const std::string& place) {
    for (const auto& [name, property] : object.at("properties").items()) {
      const bool refers = property.size() == 1 && property.contains("$ref");
      EXPECT_TRUE(refers || property.contains("title")) << place << "." << name;
    }
    EXPECT_EQ(object.value("additionalProperties", true), false) << place;
  };
  explained(schema_json(), "scene");
  for (const auto& [name, definition] : schema_json().at("definitions").items()) {
    if (definition.contains("properties")) explained(definition, name);
  }
}

TEST(SceneSchema, StepNamesMatchTheParser) {
  const json& names = schema_json().at("definitions").at("step_name").at("enum");
  std::set<std::string> known;
  for (const json& name : names) {
    known.insert(name.get<std::string>());
    const json note = {{name.get<std::string>(), "note"}};
    EXPECT_EQ(parser_complaint(scene_with("\"notes\": " + note.dump())), "") << name;
  }
  EXPECT_EQ(known.size(), names.size());
  for (const auto& path : example_scenes()) {
    const auto trace = fovea::scene::trace_scene(fovea::scene::load_scene(path.string()));
    for (const auto& step : trace.steps) EXPECT_TRUE(known.contains(step.name)) << step.name;
  }
}

}  // namespace
