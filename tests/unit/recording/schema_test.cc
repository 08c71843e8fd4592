// SPDX-License-Identifier: Apache-2.0
//
// docs/recording.schema.json and the reader agree: every object of options has the same keys in
// both, and the reader accepts the valid descriptions of tests/data/recording_schema_cases.json and
// rejects the invalid ones. "written" in this file is what the writer produces.
// tests/docs/schema_test.py validates the same descriptions against the schema.

#include "support/schema.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fovea/recording.h"

#include "support/files.h"
#include "support/message_of.h"
#include "support/recording_file.h"
#include "support/tensor_files.h"

namespace fovea::test {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

const ordered_json& description_cases() {
  static const auto parsed = ordered_json::parse(
      read_file(std::filesystem::path(FOVEA_TEST_DATA) / "recording_schema_cases.json"));
  return parsed;
}

/// Returns the reader's message for a description beside the tensors of the small recording, or "no
/// error".
std::string reader_complaint(const ordered_json& content) {
  const std::string bytes = recording_bytes(small_recording(), content.dump());
  return message_of([&] { open_recording(bytes); });
}

TEST(RecordingSchema, ValidDescriptionsAreAccepted) {
  EXPECT_GE(description_cases().at("right").size(), 34U);
  for (const auto& content : description_cases().at("right")) {
    EXPECT_EQ(reader_complaint(content), "no error") << content;
  }
}

TEST(RecordingSchema, InvalidDescriptionsAreRejected) {
  EXPECT_GE(description_cases().at("wrong").size(), 74U);
  for (const auto& wrong : description_cases().at("wrong")) {
    EXPECT_NE(reader_complaint(wrong.at("content")), "no error") << wrong.at("why");
  }
}

TEST(RecordingSchema, KeysOfOptionsMatchTheReader) {
  const json schema = read_schema("recording.schema.json");
  const std::vector<std::pair<std::string, std::string>> objects = {
      {"options", R"({"zzz": 1})"},
      {"score", R"({"score": {"zzz": 1}})"},
      {"relative", R"({"score": {"relative": {"zzz": 1}}})"},
      {"mask", R"({"mask": {"zzz": 1}})"},
      {"documents", R"({"mask": {"documents": {"zzz": 1}}})"},
  };
  for (const auto& [name, options] : objects) {
    ordered_json content = small_recording().content;
    content["attentions"][0]["options"] = ordered_json::parse(options);
    const json& definition = schema.at("definitions").at(name);
    EXPECT_EQ(property_names(definition), listed_keys(reader_complaint(content))) << name;
    EXPECT_EQ(definition.at("additionalProperties"), false) << name;
  }
}

/// Unknown keys are allowed where the reader ignores them.
TEST(RecordingSchema, EveryKeyHasATitle) {
  const json schema = read_schema("recording.schema.json");
  const auto check = [](const json& object, const std::string& place) {
    for (const auto& [name, property] : object.at("properties").items()) {
      EXPECT_TRUE(property.contains("title")) << place << "." << name;
    }
  };
  check(schema, "recording");
  for (const auto& [name, definition] : schema.at("definitions").items()) {
    if (definition.contains("properties")) check(definition, name);
  }
  EXPECT_FALSE(schema.contains("additionalProperties"));
  for (const char* name : {"attention", "token_list"}) {
    EXPECT_FALSE(schema.at("definitions").at(name).contains("additionalProperties")) << name;
  }
}

// The shape of the small recording.
constexpr std::int64_t kItems = 2, kQueryHeads = 2, kKeyHeads = 1, kRows = 2, kColumns = 3;

Tensor floats(const Shape& shape, double first) {
  Tensor result(DType::kFloat32, shape);
  double number = first;
  for (float& each : result.span<float>()) each = static_cast<float>(number += 0.5);
  return result;
}

/// One set of options for every kind of value that the writer produces.
std::vector<AttentionOptions> every_option() {
  const Tensor query_ids = Tensor::from<std::int64_t>({kRows}, {0, 1});
  const Tensor key_ids = Tensor::from<std::int64_t>({kItems, kColumns}, {0, 1, 1, 0, 0, 2});
  Tensor visible(DType::kBool, {kRows, kColumns});
  for (bool& each : visible.span<bool>()) each = true;
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<AttentionOptions> all(1);
  all.push_back({.mask = causal()});
  all.push_back({.mask = window(3, -1) & causal(), .alignment = Alignment::top_left()});
  all.push_back({.mask = (causal() | prefix(2)) & key_lengths({3})});
  all.push_back({.mask = documents(query_ids, key_ids), .alignment = Alignment::offset(-3)});
  all.push_back({.mask = key_lengths({1, 3}), .alignment = Alignment::offsets({0, 1})});
  all.push_back({.mask = dense(std::move(visible))});
  all.push_back({.mask = (causal() | (prefix(1) & (window(1, 1) | prefix(3)))) & prefix(2)});
  all.push_back({.score = {.scale = 0.25, .softcap = 30.0}});
  all.push_back({.score = {.bias = floats({kRows, kColumns}, 1.0), .alibi = Alibi{}}});
  all.push_back({.score = {.alibi = Alibi{{0.5, 0.25}}, .sinks = {0.5, -1.0}}});
  all.push_back({.score = {.relative = RelativeTable{floats({8, kQueryHeads}, 3.0), false, 20}}});
  all.push_back({.score = {.sinks = {0.5, -infinity}}});
  return all;
}

/// Returns the description that the writer produces, without the version of the library.
ordered_json written_description(const std::string& path,
                                 const std::vector<RecordedAttention>& attentions,
                                 const std::vector<TokenList>& tokens) {
  RecordingWriter writer(path, {.model = "model", .source = "two texts"});
  for (const RecordedAttention& each : attentions) writer.add(each);
  for (const TokenList& each : tokens) writer.add(each);
  writer.finish();
  const TensorFile file = TensorFile::open(path);
  for (const auto& [key, text] : file.metadata()) {
    if (key != "fovea") continue;
    ordered_json content = ordered_json::parse(text);
    content["written_by"] = "fovea";
    return content;
  }
  return nullptr;
}

/// With UPDATE=1 in the environment, the test writes the file anew.
TEST(RecordingSchema, TheWriterProducesWhatTheSchemaIsTestedWith) {
  const Folder folder;
  const std::string path = folder / "run.safetensors";
  std::vector<RecordedAttention> attentions;
  for (const AttentionOptions& options : every_option()) {
    RecordedAttention attention{.name = "layers." + std::to_string(attentions.size()),
                                .layer = std::ssize(attentions),
                                .options = options};
    attention.query = floats({kItems, kQueryHeads, kRows, 2}, 0.0);
    attention.key = floats({kItems, kKeyHeads, kColumns, 2}, 0.0);
    attention.lse = floats({kItems, kQueryHeads, kRows}, 0.0);
    attentions.push_back(std::move(attention));
  }
  attentions[1].kind = AttentionKind::kCross;
  attentions[1].heads = {0, 5};
  attentions[1].query_tokens = {"answer", "other answer"};
  attentions[1].key_tokens = {"question"};
  // More numbers than the text of the description holds.
  RecordedAttention many{.name = "many heads"};
  const std::vector<double> slopes(17, 0.5);
  many.options = {.mask = key_lengths(std::vector<std::int64_t>(17, 1)),
                  .score = {.alibi = Alibi{slopes}, .sinks = slopes}};
  many.query = floats({17, 17, 1, 1}, 0.0);
  many.key = floats({17, 1, 1, 1}, 0.0);
  many.lse = floats({17, 17, 1}, 0.0);
  attentions.push_back(std::move(many));
  const std::vector<TokenList> tokens = {
      {.name = "question", .texts = {"a", "b", "c"}, .grid_rows = 1, .grid_columns = 3},
      {.name = "answer", .ids = {1, 2}, .texts = {"é", ""}},
      {.name = "other answer", .texts = {"x", "y"}}};
  const ordered_json written = {written_description(path, attentions, tokens),
                                written_description(path, {}, {})};
  const auto file = std::filesystem::path(FOVEA_TEST_DATA) / "recording_schema_cases.json";
  if (std::getenv("UPDATE") != nullptr) {
    std::string text = read_file(file);
    text.resize(text.find("\"written\": ") + std::string_view("\"written\": ").size());
    std::ofstream(file) << text << "[\n    " << written[0].dump() << ",\n    " << written[1].dump()
                        << "\n  ]\n}\n";
  }
  EXPECT_EQ(written, ordered_json::parse(read_file(file)).at("written"));
  EXPECT_EQ(Recording::open(path).attentions().size(), 0U);
}

}  // namespace
}  // namespace fovea::test
