// SPDX-License-Identifier: Apache-2.0
//
// docs/scene.schema.json and the parser say the same: what one takes the other takes, and every
// object has the same keys in both.

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>

#include "fovea/error.h"
#include "fovea/scene.h"

namespace {

using nlohmann::json;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << "cannot read " << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

const json& schema_json() {
  static const json schema =
      json::parse(read_file(std::filesystem::path(FOVEA_DOCS) / "scene.schema.json"));
  return schema;
}

/// What the schema holds against a scene; empty when it conforms.
std::string schema_complaints(const json& scene) {
  static const valijson::Schema& schema = []() -> const valijson::Schema& {
    static valijson::Schema built;
    valijson::SchemaParser parser(valijson::SchemaParser::kDraft7);
    parser.populateSchema(valijson::adapters::NlohmannJsonAdapter(schema_json()), built);
    return built;
  }();
  valijson::Validator validator;
  valijson::ValidationResults results;
  const valijson::adapters::NlohmannJsonAdapter target(scene);
  if (validator.validate(schema, target, &results)) return "";
  std::string complaints;
  valijson::ValidationResults::Error error;
  while (results.popError(error)) {
    for (const std::string& part : error.context) complaints += part;
    complaints += ": " + error.description + "\n";
  }
  return complaints.empty() ? "does not conform" : complaints;
}

/// The parser's message for a scene; empty when it is taken.
std::string parser_complaint(const std::string& text) {
  try {
    fovea::scene::parse_scene(text);
  } catch (const fovea::InvalidArgument& error) {
    return error.what();
  }
  return "";
}

/// Two tokens of two numbers each, and whatever else is given.
std::string scene_with(const std::string& members) {
  return R"({"tokens": ["a", "b"], "embeddings": [[1, 0], [0, 1]], )" + members + "}";
}

/// The same, with embeddings that are drawn.
std::string drawn_scene_with(const std::string& members) {
  return R"({"text": "a b", "seed": 1, "embeddings": {"draw": "rand", "dim": 2}, )" + members + "}";
}

TEST(SceneSchema, AllExamplesConform) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(FOVEA_SCENES)) {
    if (entry.path().extension() != ".json") continue;
    ++count;
    const std::string text = read_file(entry.path());
    EXPECT_EQ(schema_complaints(json::parse(text)), "") << entry.path();
    EXPECT_EQ(json::parse(text).at("$schema"), "../../docs/scene.schema.json") << entry.path();
  }
  EXPECT_GE(count, 11);
}

const std::vector<std::string>& right_scenes() {
  static const std::vector<std::string> scenes = {
      R"({"tokens": ["a"], "embeddings": [[1]]})",
      R"({"text": "a b", "embeddings": [[1], [2.5]]})",
      R"({"tokens": [7, 7], "embeddings": [[1], [2]]})",
      R"({"tokens": ["a"], "embeddings": [[[1]]]})",
      R"({"tokens": [["a"], ["b"]], "embeddings": [[[1]], [[2]]], "focus": [1, 0]})",
      R"({"tokens": [[1], [2]], "embeddings": [[[1]], [[2]]]})",
      scene_with(R"("$schema": "x.json", "title": "T")"),
      scene_with(R"("source": {"tokens": ["x"], "embeddings": [[1, 1]]})"),
      scene_with(R"("source": {"text": "x y", "embeddings": [[1, 1], [2, 2]]})"),
      drawn_scene_with(R"("source": {"text": "x", "embeddings": {"draw": "randn", "dim": 2}})"),
      R"({"text": "a", "seed": 0, "embeddings": {"draw": "randint", "low": -2, "high": 3, "dim": 2}})",
      R"({"text": "a", "seed": 4294967295, "embeddings": {"draw": "randint", "high": 3, "dim": 2}})",
      scene_with(R"("projections": "none")"),
      scene_with(R"("projections": {"query": [[1], [2]], "key": [[1], [2]],
                                    "value": [[1, 2, 3], [4, 5, 6]]})"),
      drawn_scene_with(R"("projections": {"draw": "randn"})"),
      drawn_scene_with(R"("projections": {"draw": "randint", "low": 0, "high": 3, "dim": 4,
                                          "value_dim": 6}, "heads": 2)"),
      drawn_scene_with(R"("projections": {"query": {"draw": "rand", "dim": 3},
                                          "key": {"draw": "randint", "low": 1, "high": 2, "dim": 3},
                                          "value": [[1], [2]]})"),
      drawn_scene_with(R"("projections": {"draw": "randn", "dim": 4}, "heads": 2, "kv_heads": 1)"),
      scene_with(R"("score": "dot")"),
      scene_with(R"-("score": {"kind": "dot", "scale": "1/sqrt(head_dim)"})-"),
      scene_with(R"("score": {"scale": 0.25, "softcap": 2.5})"),
      scene_with(R"("score": {"kind": "general", "weights": [[1, 0], [0, 1]]})"),
      drawn_scene_with(R"("score": {"kind": "general", "weights": {"draw": "randn"}})"),
      scene_with(R"("score": {"kind": "additive", "query_weights": [[1], [0]],
                              "key_weights": [[0], [1]], "v": [1]})"),
      drawn_scene_with(
          R"("score": {"kind": "additive", "query_weights": {"draw": "randn", "dim": 3},
                                    "key_weights": {"draw": "randn", "dim": 3},
                                    "v": {"draw": "randn", "dim": 3}})"),
      scene_with(R"("score": {"bias": [[0, "-inf"], [1.5, 0]]})"),
      scene_with(R"("score": {"bias": [0, 1]})"),
      scene_with(R"("score": {"alibi": true})"),
      scene_with(R"("score": {"alibi": [0.5]})"),
      scene_with(R"("score": {"relative": {"table": [[1], [2], [3], [4]], "bidirectional": false,
                                           "max_distance": 8}})"),
      scene_with(R"("score": {"sinks": [1.5]})"),
      scene_with(R"("mask": "none")"),
      scene_with(R"("mask": "causal")"),
      scene_with(R"("mask": {"causal": true, "window": [-1, 0]})"),
      scene_with(R"("mask": {"causal": true, "prefix": 1})"),
      scene_with(R"("mask": {"key_lengths": [1]})"),
      scene_with(R"("mask": {"key_lengths": 2})"),
      scene_with(R"("mask": {"documents": [0, 1]})"),
      scene_with(R"("mask": {"documents": {"query": [0, 1], "key": [0, 1]}})"),
      scene_with(R"("mask": {"dense": [[true, false], [true, true]]})"),
      scene_with(R"("mask": {"all": ["causal", {"any": [{"prefix": 1}, {"window": [0, 0]}]}]})"),
      scene_with(R"("alignment": "bottom-right")"),
      scene_with(R"("alignment": "top-left")"),
      scene_with(R"("alignment": -1)"),
      scene_with(R"("alignment": [1])"),
      scene_with(R"("normalizations": ["sum", "softmax_unshifted", "softmax"])"),
      scene_with(R"("focus": "b")"),
      scene_with(R"("focus": 1)"),
      scene_with(R"("focus": null)"),
      scene_with(R"("dtype": "float32", "precision": 17)"),
      scene_with(R"("dtype": "float64", "precision": 0)"),
      scene_with(R"("notes": {"scene": "s", "weights": "w", "focus.row_sums[sum]": "r"})"),
      scene_with(R"("expect": [])"),
      scene_with(R"("expect": [{"step": "tokens", "values": ["a", "b"]},
                               {"step": "embeddings", "values": [[1, 0], [0, 1]]},
                               {"step": "weights", "index": 0, "values": [0.67, 0.33], "digits": 2,
                                "note": "n"},
                               {"step": "weights", "index": [0, 1], "values": 0.33,
                                "significant": 2},
                               {"step": "context", "values": [["nan", "inf"], ["-inf", 1.5]],
                                "rtol": 1e-3, "atol": 0.5}])"),
  };
  return scenes;
}

TEST(SceneSchema, RightScenesAreTakenByBoth) {
  for (const std::string& text : right_scenes()) {
    EXPECT_EQ(parser_complaint(text), "") << text;
    EXPECT_EQ(schema_complaints(json::parse(text)), "") << text;
  }
}

TEST(SceneSchema, WrongScenesAreRefusedByBoth) {
  const std::vector<std::string> scenes = {
      "[]",
      "3",
      "{}",
      R"({"tokens": ["a"]})",
      R"({"embeddings": [[1]]})",
      R"({"tokens": ["a"], "text": "a", "embeddings": [[1]]})",
      R"({"tokens": [], "embeddings": [[1]]})",
      R"({"tokens": [""], "embeddings": [[1]]})",
      R"({"tokens": ["a", 1], "embeddings": [[1], [2]]})",
      R"({"tokens": [1.5], "embeddings": [[1]]})",
      R"({"tokens": "a", "embeddings": [[1]]})",
      R"({"tokens": {"a": 1}, "embeddings": [[1]]})",
      R"({"tokens": [["a"], "b"], "embeddings": [[1], [2]]})",
      R"({"tokens": [[]], "embeddings": [[[1]]]})",
      R"({"text": "", "embeddings": [[1]]})",
      R"({"text": ["a"], "embeddings": [[1]]})",
      R"({"text": "a", "embeddings": []})",
      R"({"text": "a", "embeddings": [[]]})",
      R"({"text": "a", "embeddings": [1]})",
      R"({"text": "a", "embeddings": [["x"]]})",
      R"({"text": "a", "embeddings": [["nan"]]})",
      R"({"text": "a", "embeddings": "random"})",
      R"({"text": "a", "seed": 1, "embeddings": {"draw": "rand"}})",
      R"({"text": "a", "seed": 1, "embeddings": {"draw": "uniform", "dim": 2}})",
      R"({"text": "a", "seed": 1, "embeddings": {"draw": "rand", "dim": 0}})",
      R"({"text": "a", "seed": 1, "embeddings": {"draw": "rand", "dim": 2, "high": 3}})",
      R"({"text": "a", "seed": 1, "embeddings": {"draw": "randint", "dim": 2}})",
      R"({"text": "a", "seed": 1, "embeddings": {"draw": "rand", "dim": 2, "mean": 0}})",
      R"({"text": "a", "seed": -1, "embeddings": {"draw": "rand", "dim": 2}})",
      R"({"text": "a", "seed": 4294967296, "embeddings": {"draw": "rand", "dim": 2}})",
      R"({"text": "a", "seed": "42", "embeddings": {"draw": "rand", "dim": 2}})",
      scene_with(R"("tokns": 1)"),
      scene_with(R"("title": 1)"),
      scene_with(R"("$schema": 1)"),
      scene_with(R"("source": {"tokens": ["x"]})"),
      scene_with(R"("source": {"embeddings": [[1, 1]]})"),
      scene_with(R"("source": {"text": "x", "embeddings": [[1, 1]], "seed": 1})"),
      scene_with(R"("source": "x")"),
      scene_with(R"("projections": "some")"),
      scene_with(R"("projections": {})"),
      scene_with(R"("projections": {"query": [[1], [1]], "key": [[1], [1]]})"),
      scene_with(R"("projections": {"query": [[1], [1]], "key": [[1], [1]], "value": 1})"),
      scene_with(R"("projections": {"query": [[1], [1]], "key": [[1], [1]], "value": [[1], [1]],
                                    "dim": 2})"),
      drawn_scene_with(R"("projections": {"draw": "rand", "query": [[1], [1]]})"),
      drawn_scene_with(R"("projections": {"draw": "randint", "low": 0})"),
      drawn_scene_with(R"("projections": {"draw": "rand", "width": 3})"),
      drawn_scene_with(R"("projections": {"query": {"draw": "rand", "value_dim": 2},
                                          "key": [[1, 2], [1, 2]], "value": [[1], [1]]})"),
      scene_with(R"("heads": 0)"),
      scene_with(R"("heads": "2")"),
      scene_with(R"("heads": 1.5)"),
      scene_with(R"("kv_heads": 0)"),
      scene_with(R"("score": "cosine")"),
      scene_with(R"("score": "general")"),
      scene_with(R"("score": [])"),
      scene_with(R"("score": {"kind": "cosine"})"),
      scene_with(R"("score": {"kind": "general"})"),
      scene_with(R"("score": {"kind": "additive", "v": [1]})"),
      scene_with(R"("score": {"weights": [[1, 0], [0, 1]]})"),
      scene_with(R"("score": {"kind": "general", "weights": [[1, 0], [0, 1]], "v": [1]})"),
      scene_with(R"("score": {"scale": "sqrt"})"),
      scene_with(R"("score": {"scale": true})"),
      scene_with(R"("score": {"softcap": 0})"),
      scene_with(R"("score": {"softcap": "5"})"),
      scene_with(R"("score": {"bias": 1})"),
      scene_with(R"("score": {"bias": [[0, "minus"], [0, 0]]})"),
      scene_with(R"("score": {"alibi": "true"})"),
      scene_with(R"("score": {"sinks": 1})"),
      scene_with(R"("score": {"sink": [1]})"),
      scene_with(R"("score": {"relative": {}})"),
      scene_with(R"("score": {"relative": {"table": [1, 2]}})"),
      scene_with(R"("score": {"relative": {"table": [[1], [2]], "bidirectional": 1}})"),
      scene_with(R"("score": {"relative": {"table": [[1], [2]], "max_distance": 0}})"),
      scene_with(R"("score": {"relative": {"table": [[1], [2]], "buckets": 2}})"),
      scene_with(R"("mask": "future")"),
      scene_with(R"("mask": true)"),
      scene_with(R"("mask": {"casual": true})"),
      scene_with(R"("mask": {"causal": "yes"})"),
      scene_with(R"("mask": {"window": 3})"),
      scene_with(R"("mask": {"window": [1]})"),
      scene_with(R"("mask": {"window": [-2, 0]})"),
      scene_with(R"("mask": {"prefix": -1})"),
      scene_with(R"("mask": {"key_lengths": "all"})"),
      scene_with(R"("mask": {"key_lengths": [-1]})"),
      scene_with(R"("mask": {"documents": [0.5, 1]})"),
      scene_with(R"("mask": {"documents": {"query": [0, 1]}})"),
      scene_with(R"("mask": {"documents": {"query": [0, 1], "key": [0, 1], "value": [0, 1]}})"),
      scene_with(R"("mask": {"dense": [[1, 0], [1, 1]]})"),
      scene_with(R"("mask": {"dense": true})"),
      scene_with(R"("mask": {"all": []})"),
      scene_with(R"("mask": {"any": {"causal": true}})"),
      scene_with(R"("mask": {"any": [{"causal": 1}]})"),
      scene_with(R"("alignment": "left")"),
      scene_with(R"("alignment": 0.5)"),
      scene_with(R"("normalizations": [])"),
      scene_with(R"("normalizations": "softmax")"),
      scene_with(R"("normalizations": ["sofmax"])"),
      scene_with(R"("normalizations": ["softmax", "softmax"])"),
      scene_with(R"("focus": 1.5)"),
      scene_with(R"("focus": -1)"),
      scene_with(R"("focus": [0])"),
      scene_with(R"("focus": {"index": 0})"),
      scene_with(R"("dtype": "float16")"),
      scene_with(R"("precision": 18)"),
      scene_with(R"("precision": -1)"),
      scene_with(R"("notes": "text")"),
      scene_with(R"("notes": {"wieghts": "text"})"),
      scene_with(R"("notes": {"weights": ["text"]})"),
      scene_with(R"("notes": {"focus.query_weights": "no such step"})"),
      scene_with(R"("expect": {"step": "weights", "values": 1})"),
      scene_with(R"("expect": [{"values": 1}])"),
      scene_with(R"("expect": [{"step": "weights"}])"),
      scene_with(R"("expect": [{"step": "wieghts", "values": 1}])"),
      scene_with(R"("expect": [{"step": "weights", "values": true}])"),
      scene_with(R"("expect": [{"step": "weights", "values": "one"}])"),
      scene_with(R"("expect": [{"step": "tokens", "values": [1.5]}])"),
      scene_with(R"("expect": [{"step": "weights", "values": 1, "value": 1}])"),
      scene_with(R"("expect": [{"step": "weights", "values": 1, "index": -1}])"),
      scene_with(R"("expect": [{"step": "weights", "values": 1, "index": []}])"),
      scene_with(R"("expect": [{"step": "weights", "values": 1, "digits": 18}])"),
      scene_with(R"("expect": [{"step": "weights", "values": 1, "significant": 0}])"),
      scene_with(R"("expect": [{"step": "weights", "values": 1, "atol": -1}])"),
      scene_with(R"("expect": [{"step": "weights", "values": 1, "digits": 2, "significant": 2}])"),
      scene_with(R"("expect": [{"step": "weights", "values": 1, "digits": 2, "atol": 2}])"),
      scene_with(R"("expect": [{"step": "weights", "values": 1, "significant": 2, "rtol": 2}])"),
      scene_with(R"("expect": [{"step": "weights", "values": 1, "note": 1}])"),
  };
  for (const std::string& text : scenes) {
    EXPECT_NE(parser_complaint(text), "") << text;
    EXPECT_NE(schema_complaints(json::parse(text)), "") << text;
  }
}

/// The keys that the parser lists when it meets an unknown one.
std::set<std::string> parser_keys(const std::string& text) {
  const std::string message = parser_complaint(text);
  constexpr std::string_view kBefore = "; the keys here are: ";
  const auto at = message.find(kBefore);
  EXPECT_NE(message.find("unknown key \"zzz\""), std::string::npos) << message;
  EXPECT_NE(at, std::string::npos) << message;
  if (at == std::string::npos) return {};
  std::set<std::string> keys;
  std::string_view rest = std::string_view(message).substr(at + kBefore.size());
  while (!rest.empty()) {
    const auto comma = rest.find(", ");
    keys.emplace(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 2);
  }
  return keys;
}

std::set<std::string> property_names(const json& object) {
  std::set<std::string> names;
  for (const auto& [name, property] : object.at("properties").items()) names.insert(name);
  return names;
}

TEST(SceneSchema, EveryObjectHasTheParsersKeys) {
  EXPECT_EQ(property_names(schema_json()), parser_keys(R"({"zzz": 1})"));
  const std::vector<std::pair<std::string, std::string>> objects = {
      {"source", scene_with(R"("source": {"zzz": 1})")},
      {"drawing", R"({"tokens": ["a"], "embeddings": {"zzz": 1}})"},
      {"projections", scene_with(R"("projections": {"zzz": 1})")},
      {"score", scene_with(R"("score": {"zzz": 1})")},
      {"relative", scene_with(R"("score": {"relative": {"zzz": 1}})")},
      {"mask", scene_with(R"("mask": {"zzz": 1})")},
      {"documents", scene_with(R"("mask": {"documents": {"zzz": 1}})")},
      {"expectation", scene_with(R"("expect": [{"zzz": 1}])")},
  };
  for (const auto& [name, text] : objects) {
    EXPECT_EQ(property_names(schema_json().at("definitions").at(name)), parser_keys(text)) << name;
  }
}

TEST(SceneSchema, EveryKeyIsExplained) {
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

TEST(SceneSchema, StepNamesAreTheParsers) {
  const json& names = schema_json().at("definitions").at("step_name").at("enum");
  std::set<std::string> known;
  for (const json& name : names) {
    known.insert(name.get<std::string>());
    const json note = {{name.get<std::string>(), "note"}};
    EXPECT_EQ(parser_complaint(scene_with("\"notes\": " + note.dump())), "") << name;
  }
  EXPECT_EQ(known.size(), names.size());
  for (const auto& entry : std::filesystem::directory_iterator(FOVEA_SCENES)) {
    if (entry.path().extension() != ".json") continue;
    const auto trace = fovea::scene::trace_scene(fovea::scene::load_scene(entry.path().string()));
    for (const auto& step : trace.steps) EXPECT_TRUE(known.contains(step.name)) << step.name;
  }
}

}  // namespace
