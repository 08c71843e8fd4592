// SPDX-License-Identifier: Apache-2.0
//
// Malformed recordings: one message for each kind.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fovea/error.h"
#include "fovea/recording.h"

#include "support/message_of.h"
#include "support/recording_file.h"
#include "support/tensor_files.h"

namespace fovea::test {
namespace {

using nlohmann::ordered_json;

/// A change of the small recording, and the message of the result.
struct Malformed {
  std::function<void(RecordingParts&)> change;
  std::string message;
};

void expect_messages(const std::vector<Malformed>& cases) {
  for (const Malformed& each : cases) {
    RecordingParts parts = small_recording();
    each.change(parts);
    const std::string message = complaint_about(recording_bytes(parts));
    EXPECT_EQ(message, each.message);
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

/// Returns a change that sets a key of the attention, or of its options.
std::function<void(RecordingParts&)> attention_key(const char* key, const char* json) {
  return [=](RecordingParts& parts) { parts.attention()[key] = ordered_json::parse(json); };
}
std::function<void(RecordingParts&)> option_key(const char* key, const char* json) {
  return [=](RecordingParts& parts) { parts.options()[key] = ordered_json::parse(json); };
}
std::function<void(RecordingParts&)> root_key(const char* key, const char* json) {
  return [=](RecordingParts& parts) { parts.content[key] = ordered_json::parse(json); };
}
/// Returns a change that replaces a tensor, or removes it.
std::function<void(RecordingParts&)> tensor_is(const StoredTensor& tensor) {
  return [=](RecordingParts& parts) { parts.tensor(tensor.name) = tensor; };
}
std::function<void(RecordingParts&)> without(const char* name) {
  return [=](RecordingParts& parts) { parts.remove(name); };
}

TEST(RecordingMalformed, TheSmallRecordingIsValid) {
  const std::string bytes = recording_bytes(small_recording());
  const Recording recording = open_recording(bytes);
  ASSERT_EQ(recording.attentions().size(), 1U);
  EXPECT_EQ(recording.query_tokens(recording.attentions()[0], 1)->texts[0], "é");
  EXPECT_EQ(recording.query_tokens(recording.attentions()[0], 0)->ids[1], 8);
  EXPECT_EQ(recording.path(), "file");
}

TEST(RecordingMalformed, Versions) {
  for (const char* version : {"1", "1.7", "1.0.3", "1."}) {
    RecordingParts parts = small_recording();
    parts.version = version;
    EXPECT_EQ(complaint_about(recording_bytes(parts)), "no error") << version;
  }
  const auto version = [](const char* text) {
    return [=](RecordingParts& parts) { parts.version = text; };
  };
  const std::string newer = "file: fovea.recording: expected version 1, got version ";
  const std::string other = "file: fovea.recording: expected a version such as \"1\", got ";
  expect_messages({{version("2"), newer + "2, which a newer Fovea has written"},
                   {version("12.1"), newer + "12.1, which a newer Fovea has written"},
                   {version("99999999999999999999"),
                    newer + "99999999999999999999, which a newer Fovea has written"},
                   {version(""), other + "\"\""},
                   {version("0"), other + "\"0\""},
                   {version("-1"), other + "\"-1\""},
                   {version("-99999999999999999999"), other + "\"-99999999999999999999\""},
                   {version("1a"), other + "\"1a\""},
                   {version("one\n"), other + "\"one\\n\""}});
}

TEST(RecordingMalformed, OtherFiles) {
  EXPECT_EQ(complaint_about(safetensors_file("{}")),
            "file: expected a recording, whose metadata has \"fovea.recording\", got a file "
            "without");
  EXPECT_EQ(complaint_about(safetensors_file(R"({"__metadata__":{"fovea.recording":"1"}})")),
            "file: metadata: expected the key \"fovea\", got none");
  const std::string array = npy_array("<f4", "(1,)", std::string(4, '\0'));
  EXPECT_EQ(message_of([&] { Recording::from_file(open_bytes(FileFormat::kNpy, array)); }),
            "file: expected a recording, whose metadata has \"fovea.recording\", got a file "
            "without");
}

TEST(RecordingMalformed, Descriptions) {
  const auto text = [](const std::string& content) {
    return complaint_about(recording_bytes(small_recording(), content));
  };
  EXPECT_EQ(text(""), "file: fovea: expected a JSON object, got nothing");
  EXPECT_EQ(text("[]"), "file: fovea: expected an object, got an empty array");
  EXPECT_EQ(text("{}"), "file: fovea: expected a key \"attentions\", got none");
  EXPECT_THAT(
      text("{\"attentions\": [}"),
      testing::StartsWith("file: attentions[0]: expected JSON in UTF-8; line 1, column 17"));
  EXPECT_EQ(text("{\"model\": 1, \"model\": 2}"), "file: model: this key occurs twice");
  EXPECT_EQ(
      text("{\"attentions\": " + std::string(40, '[') + std::string(40, ']') + "}"),
      "file: attentions" +
          [] {
            std::string places;
            for (int i = 0; i < 31; ++i) places += "[0]";
            return places;
          }() +
          ": expected at most 32 levels of nesting, got more");
  EXPECT_EQ(text(std::string(100'000, '[')).substr(0, 14), "file: [0][0][0");
  EXPECT_THAT(
      text(R"({"attentions": [{"name": "a", "layer": 1e999}]})"),
      testing::StartsWith("file: attentions[0].layer: expected a number that fits into float64; "));
  expect_messages({
      {root_key("attentions", "{}"),
       "file: fovea.attentions: expected an array of attentions, got an object"},
      {root_key("attentions", "[1]"),
       "file: fovea.attentions[0]: expected an attention, an object, got 1"},
      {root_key("attentions", "[{}]"),
       "file: fovea.attentions[0]: expected a key \"name\", got none"},
      {root_key("model", "7"), "file: fovea.model: expected a string, got 7"},
      {root_key("source", "[]"), "file: fovea.source: expected a string, got an empty array"},
      {root_key("written_by", "null"), "file: fovea.written_by: expected a string, got null"},
      {root_key("tokens", "\"a\""),
       "file: fovea.tokens: expected an array of token lists, got the string \"a\""},
      {root_key("tokens", "[\"a\"]"),
       "file: fovea.tokens[0]: expected a token list, an object, got the string \"a\""},
      {root_key("tokens", R"([{"name": "a"}, {"name": "a"}])"),
       "file: fovea.tokens[1].name: expected a name that a token list before it does not have, "
       "got the string \"a\""},
      {root_key("tokens", R"([{"name": ""}])"),
       "file: fovea.tokens[0].name: expected a name that is not empty, got the string \"\""},
      {root_key("tokens", R"([{"name": "a", "grid": [1]}])"),
       "file: fovea.tokens[0].grid: expected [rows, columns], got an array of 1"},
      {root_key("tokens", R"([{"name": "a", "grid": [0, 1]}])"),
       "file: fovea.tokens[0].grid[0]: expected a whole number from 1 to 1099511627776, got 0"},
      {root_key("tokens", R"([{"name": "a", "grid": [1099511627776, 1099511627776]}])"),
       "file: \"a\": expected a grid of 1 to 2 patches, as many as there are tokens, got "
       "1099511627776 x 1099511627776"},
      {attention_key("name", "\"\""),
       "file: fovea.attentions[0].name: expected a name that is not empty, got the string \"\""},
      {attention_key("name", "5"), "file: fovea.attentions[0].name: expected a string, got 5"},
      {[](RecordingParts& parts) { parts.content["attentions"].push_back(parts.attention()); },
       "file: fovea.attentions[1].name: expected a name that an attention before it does not "
       "have, got the string \"layers.0\""},
      {attention_key("layer", "-1"),
       "file: fovea.attentions[0].layer: expected a whole number from 0 to 1099511627776, got -1"},
      {attention_key("layer", "1.5"),
       "file: fovea.attentions[0].layer: expected a whole number from 0 to 1099511627776, got "
       "1.5"},
      {attention_key("layer", "18446744073709551615"),
       "file: fovea.attentions[0].layer: expected a whole number from 0 to 1099511627776, got "
       "18446744073709551615"},
      {attention_key("kind", "\"crosss\""),
       "file: fovea.attentions[0].kind: expected one of \"self\", \"encoder\", \"decoder\", "
       "\"cross\", got the string \"crosss\" (did you mean \"cross\"?)"},
      {attention_key("kind", "1"),
       "file: fovea.attentions[0].kind: expected one of \"self\", \"encoder\", \"decoder\", "
       "\"cross\", got 1"},
      {attention_key("heads", "3"),
       "file: fovea.attentions[0].heads: expected an array of whole numbers, got 3"},
      {attention_key("heads", "[0, -1]"),
       "file: fovea.attentions[0].heads[1]: expected a whole number from 0 to 1099511627776, got "
       "-1"},
      {attention_key("heads", "[3]"),
       "file: layers.0: heads: expected 2, one per head of the query, got 1"},
      {attention_key("heads", "[3, 3]"),
       "file: layers.0: heads: expected ascending numbers, got 3 after 3"},
      {attention_key("heads", "[3, 1]"),
       "file: layers.0: heads: expected ascending numbers, got 1 after 3"},
      {attention_key("query_tokens", "{}"),
       "file: fovea.attentions[0].query_tokens: expected the name of a token list, or one per "
       "batch item, got an object"},
      {attention_key("query_tokens", "[1]"),
       "file: fovea.attentions[0].query_tokens[0]: expected a string, got 1"},
      {attention_key("query_tokens", "\"zzz\""),
       "file: layers.0: query_tokens: expected the name of a token list, got \"zzz\""},
      {attention_key("query_tokens", R"(["a", "b", "a"])"),
       "file: layers.0: query_tokens: expected 1 list or one per batch item (2), got 3"},
      {attention_key("key_tokens", "\"a\""),
       "file: layers.0: key_tokens: expected 3 tokens, as the tensors have, got 2 in \"a\""},
  });
}

TEST(RecordingMalformed, UnknownKeysAreIgnoredExceptInOptions) {
  RecordingParts parts = small_recording();
  parts.content["new"] = {{"deep", {1, 2}}};
  parts.attention()["new"] = nullptr;
  parts.content["tokens"][0]["new"] = false;
  EXPECT_EQ(complaint_about(recording_bytes(parts)), "no error");
  const std::string place = "file: layers.0: fovea.attentions[0].options";
  expect_messages({
      {option_key("temperature", "1"),
       place + ": unknown key \"temperature\"; the keys here are: score, mask, alignment"},
      {option_key("score", R"({"sofcap": 1})"),
       place +
           ".score: unknown key \"sofcap\" (did you mean \"softcap\"?); the keys here are: scale, "
           "softcap, bias, alibi, relative, sinks"},
      {option_key("mask", R"({"causal": true, "dilated": 2})"),
       place + ".mask: unknown key \"dilated\"; the keys here are: causal, window, prefix, "
               "key_lengths, documents, dense, all, any"},
      {option_key("mask", R"({"any": ["causal", {"dilated": 2}]})"),
       place + ".mask.any[1]: unknown key \"dilated\"; the keys here are: causal, window, prefix, "
               "key_lengths, documents, dense, all, any"},
      {option_key("mask", R"("sparse")"),
       place + ".mask: expected one of \"none\", \"causal\", got the string \"sparse\""},
  });
}

TEST(RecordingMalformed, Options) {
  const std::string place = "file: layers.0: fovea.attentions[0].options";
  expect_messages({
      {attention_key("options", "[]"), place + ": expected an object, got an empty array"},
      {option_key("score", "1"), place + ".score: expected an object, got 1"},
      {option_key("score", R"({"scale": "1"})"),
       place + ".score.scale: expected a number, got the string \"1\""},
      {option_key("score", R"({"softcap": -1})"),
       place + ".score.softcap: expected a number above 0, or 0 for none, got -1"},
      {option_key("score", R"({"scale": 1e39})"),
       place + ".score.scale: expected a number that float32 holds, got 1e+39"},
      {option_key("score", R"({"softcap": 1e-60})"),
       place + ".score.softcap: expected a number that float32 holds, got 1e-60"},
      {option_key("score", R"({"sinks": [0, 1e39]})"),
       place + ".score.sinks: expected numbers that float32 holds, got 1e+39"},
      {option_key("score", R"({"bias": "zzz"})"),
       place + ".score.bias: expected the tensor \"zzz\", got none"},
      // Messages are cut at ": ", which names may contain.
      {option_key("score", R"({"bias": "a: b"})"),
       place + ".score.bias: expected the tensor \"a: b\", got none"},
      {option_key("score", R"({"bias": "layers.0.documents"})"),
       place + ".score.bias: expected a tensor of floats with 1 to 4 dimensions, got int64 [2, 2]"},
      {option_key("score", R"({"bias": "layers.0.relative"})"),
       place + ".score.bias: expected a shape that broadcasts to [batch, q_heads, q_len, kv_len] = "
               "[2, 2, 2, 3], got [8, 2]"},
      {option_key("score", R"({"bias": [[1, 2], [3]]})"),
       place + ".score.bias[1]: expected 2 numbers, as the first one here has, got an array of 1"},
      {option_key("score", R"({"alibi": 2})"),
       place + ".score.alibi: expected true or an array of slopes, one per head, got 2"},
      {option_key("score", R"({"alibi": []})"),
       place +
           ".score.alibi: expected true or an array of slopes, one per head, got an empty array"},
      {option_key("score", R"({"alibi": [1]})"),
       place + ".score.alibi: expected one number per query head (2), got 1"},
      {option_key("score", R"({"alibi": "layers.0.query"})"),
       place +
           ".score.alibi: expected a tensor of floats with 1 dimension, got float32 [2, 2, 2, 2]"},
      {option_key("score", R"({"sinks": []})"),
       place + ".score.sinks: expected one number per head, got an empty array"},
      {option_key("score", R"({"sinks": [1, 2, 3]})"),
       place + ".score.sinks: expected one number per query head (2), got 3"},
      {option_key("score", R"({"relative": {}})"),
       place + ".score.relative: expected a key \"table\", got none"},
      {option_key("score", R"({"relative": {"table": "layers.0.bias"}})"),
       place + ".score.relative: expected a table [buckets, q_heads] = [4 or more, 2], got [2, 3]"},
      {option_key("score", R"({"relative": {"table": "layers.0.relative", "max_distance": 0}})"),
       place +
           ".score.relative.max_distance: expected a whole number from 1 to 1099511627776, got 0"},
      {option_key("mask", "1"),
       place + ".mask: expected \"none\", \"causal\" or an object of rules, got 1"},
      {option_key("mask", R"({"causal": 1})"),
       place + ".mask.causal: expected true or false, got 1"},
      {option_key("mask", R"({"window": [1]})"),
       place + ".mask.window: expected [left, right], got an array of 1"},
      {option_key("mask", R"({"window": [-2, 0]})"),
       place + ".mask.window[0]: expected a whole number from -1 to 1099511627776, got -2"},
      {option_key("mask", R"({"window": [9223372036854775807, 0]})"),
       place + ".mask.window[0]: expected a whole number from -1 to 1099511627776, got "
               "9223372036854775807"},
      {option_key("mask", R"({"prefix": -1})"),
       place + ".mask.prefix: expected a whole number from 0 to 1099511627776, got -1"},
      {option_key("mask", R"({"key_lengths": 4})"),
       place + ".mask.key_lengths: expected lengths from 0 to kv_len = 3, got 4"},
      {option_key("mask", R"({"key_lengths": []})"),
       place + ".mask.key_lengths: expected at least 1 length, got none"},
      {option_key("mask", R"({"key_lengths": [1, 1, 1]})"),
       place + ".mask.key_lengths: expected 1 length or one per batch item (2), got 3"},
      {option_key("mask", R"({"key_lengths": "layers.0.documents"})"),
       place +
           ".mask.key_lengths: expected a tensor of whole numbers with 1 dimension, got int64 [2, "
           "2]"},
      {option_key("mask", R"({"documents": "layers.0.bias"})"),
       place + ".mask.documents: expected a tensor of whole numbers with 1 to 2 dimensions, got "
               "float32 [2, 3]"},
      {option_key("mask", R"({"documents": "layers.0.documents"})"),
       place + ".mask.documents: expected key ids of shape [3] or [2, 3], got [2, 2]"},
      {option_key("mask", R"({"documents": {"query": "layers.0.documents"}})"),
       place + ".mask.documents: expected both \"query\" and \"key\", got only one"},
      {option_key("mask", R"({"documents": {"query": "layers.0.documents", "key": "zzz"}})"),
       place + ".mask.documents.key: expected the tensor \"zzz\", got none"},
      {option_key("mask", R"({"dense": "layers.0.bias"})"),
       place +
           ".mask.dense: expected bool, true where visible, got float32; additive numbers are a "
           "bias (ScoreOptions::bias)"},
      {option_key("mask", R"({"dense": [true]})"), "no error"},
      {option_key("mask", R"({"dense": [true, false]})"),
       place +
           ".mask.dense: expected a shape that broadcasts to [batch, q_heads, q_len, kv_len] = [2, "
           "2, 2, 3], got [2]"},
      {option_key("mask", R"({"all": []})"),
       place + ".mask.all: expected at least one mask, got none"},
      {option_key("alignment", "\"left\""),
       place + ".alignment: expected one of \"bottom-right\", \"top-left\", got the string "
               "\"left\""},
      {option_key("alignment", "true"),
       place +
           ".alignment: expected \"bottom-right\", \"top-left\", a whole number, or one per batch "
           "item, got true"},
      {option_key("alignment", "1099511627777"),
       place + ".alignment: expected a whole number from -1099511627776 to 1099511627776, got "
               "1099511627777"},
      {option_key("alignment", "[1, 2, 3]"),
       place + ".alignment: expected 1 offset or one per batch item (2), got 3"},
  });
}

TEST(RecordingMalformed, AMaskHasAtMost64Rules) {
  RecordingParts parts = small_recording();
  ordered_json rules = ordered_json::array();
  for (int i = 0; i < 64; ++i) rules.push_back("causal");
  parts.options()["mask"] = {{"any", rules}};
  EXPECT_EQ(complaint_about(recording_bytes(parts)), "no error");
  const std::string expected =
      "expected at most 64 rules, got more; many documents are one rule, and so is any boolean "
      "tensor";
  parts.options()["mask"]["causal"] = true;
  EXPECT_EQ(complaint_about(recording_bytes(parts)),
            "file: layers.0: fovea.attentions[0].options.mask.any: " + expected);
  rules.push_back("causal");
  parts.options()["mask"] = {{"all", rules}};
  EXPECT_EQ(complaint_about(recording_bytes(parts)),
            "file: layers.0: fovea.attentions[0].options.mask.all: " + expected);
}

TEST(RecordingMalformed, Tensors) {
  const std::string place = "file: layers.0: ";
  const std::string floats =
      "expected floats [batch, q_heads, q_len, head_dim], where only q_len may be 0 and head_dim "
      "is at most 65536, got ";
  expect_messages({
      {without("layers.0.query"), place + "expected the tensor \"layers.0.query\", got none"},
      {without("layers.0.key"), place + "expected the tensor \"layers.0.key\", got none"},
      {without("layers.0.lse"), place + "expected the tensor \"layers.0.lse\", got none"},
      {without("layers.0.value"), "no error"},
      {tensor_is(zeros("layers.0.query", "F8_E4M3", {2, 2, 2, 2}, 1)),
       place + "\"layers.0.query\": expected a type that Fovea has; elements are of the type "
               "\"F8_E4M3\", which Fovea does not have"},
      {tensor_is(zeros("layers.0.query", "F32", {2, 2, 4}, 4)),
       place + "\"layers.0.query\": " + floats + "float32 [2, 2, 4]"},
      {tensor_is(zeros("layers.0.query", "I32", {2, 2, 2, 2}, 4)),
       place + "\"layers.0.query\": " + floats + "int64 [2, 2, 2, 2]"},
      {tensor_is(zeros("layers.0.query", "F32", {0, 2, 2, 2}, 4)),
       place + "\"layers.0.query\": " + floats + "float32 [0, 2, 2, 2]"},
      {tensor_is(zeros("layers.0.query", "F32", {2, 0, 2, 2}, 4)),
       place + "\"layers.0.query\": " + floats + "float32 [2, 0, 2, 2]"},
      {tensor_is(zeros("layers.0.query", "F32", {2, 2, 2, 0}, 4)),
       place + "\"layers.0.query\": " + floats + "float32 [2, 2, 2, 0]"},
      {tensor_is(zeros("layers.0.query", "F32", {2, 2, 0, 65537}, 4)),
       place + "\"layers.0.query\": " + floats + "float32 [2, 2, 0, 65537]"},
      {tensor_is({"layers.0.query", "F32", {std::int64_t{1} << 62, 4, 0, 2}, ""}),
       place +
           "\"layers.0.query\": expected at most 1024 heads in all batch items where there are no "
           "queries, got float32 [4611686018427387904, 4, 0, 2]"},
      {tensor_is({"layers.0.query", "F32", {1, 1025, 0, 2}, ""}),
       place +
           "\"layers.0.query\": expected at most 1024 heads in all batch items where there are no "
           "queries, got float32 [1, 1025, 0, 2]"},
      {tensor_is(zeros("layers.0.key", "F16", {2, 1, 3, 2}, 2)),
       place + "\"layers.0.key\": expected float32 [2, kv_heads, kv_len, 2], as the query is, got "
               "float16 [2, 1, 3, 2]"},
      {tensor_is(zeros("layers.0.key", "F32", {1, 1, 3, 2}, 4)),
       place + "\"layers.0.key\": expected float32 [2, kv_heads, kv_len, 2], as the query is, got "
               "float32 [1, 1, 3, 2]"},
      {tensor_is(zeros("layers.0.key", "F32", {2, 3, 3, 2}, 4)),
       place +
           "\"layers.0.key\": expected a number of heads that divides 2, the heads of the query, "
           "got float32 [2, 3, 3, 2]"},
      {tensor_is(zeros("layers.0.key", "F32", {2, 0, 3, 2}, 4)),
       place +
           "\"layers.0.key\": expected a number of heads that divides 2, the heads of the query, "
           "got float32 [2, 0, 3, 2]"},
      {tensor_is(zeros("layers.0.lse", "F32", {2, 2, 3}, 4)),
       place +
           "\"layers.0.lse\": expected float32 [2, 2, 2], one per query, got float32 [2, 2, 3]"},
      {tensor_is(zeros("layers.0.lse", "BF16", {2, 2, 2}, 2)),
       place +
           "\"layers.0.lse\": expected float32 [2, 2, 2], one per query, got bfloat16 [2, 2, 2]"},
      {tensor_is(zeros("layers.0.value", "F32", {2, 1, 4, 5}, 4)),
       place + "\"layers.0.value\": expected float32 [2, 1, 3, value_dim], as the key is, where "
               "value_dim is from 1 to 65536, got float32 [2, 1, 4, 5]"},
      {tensor_is({"layers.0.value", "F32", {2, 1, 3, 0}, ""}),
       place + "\"layers.0.value\": expected float32 [2, 1, 3, value_dim], as the key is, where "
               "value_dim is from 1 to 65536, got float32 [2, 1, 3, 0]"},
      {tensor_is({"layers.0.key", "F32", {1 << 30, 1 << 30, 1 << 30, 2}, ""}),
       "file: layers.0.key: shape [1073741824, 1073741824, 1073741824, 2] has more bytes than fit "
       "into 63 bits"},
  });
}

TEST(RecordingMalformed, Tokens) {
  const auto offsets = [](const std::vector<std::int64_t>& numbers) {
    return tensor_is(integers("tokens.a.offsets", {std::ssize(numbers)}, numbers));
  };
  const std::string place = "file: \"tokens.a.offsets\": expected ";
  expect_messages({
      {without("tokens.a.offsets"), "file: expected the tensor \"tokens.a.offsets\", got none"},
      {without("tokens.a.text"), "file: expected the tensor \"tokens.a.text\", got none"},
      {without("tokens.a.ids"), "no error"},
      {offsets({}), place + "one number more than there are tokens, got none"},
      {offsets({1, 2, 2}), place + "0 at the beginning, got 1 at [0]"},
      {offsets({0, 2, 1}), place + "numbers that do not decrease, got 1 at [2]"},
      {offsets({0, -1, 2}), place + "numbers that do not decrease, got -1 at [1]"},
      {offsets({0, 1, 3}), place + "at most 2, where the text ends, got 3 at [2]"},
      {offsets({0, 1, INT64_MAX}),
       place + "at most 2, where the text ends, got 9223372036854775807 at [2]"},
      {offsets({0, 0, 1}), place + "2 at the end, where the text ends, got 1 at [2]"},
      {offsets({0}), place + "2 at the end, where the text ends, got 0 at [0]"},
      {tensor_is(zeros("tokens.a.offsets", "F32", {3}, 4)),
       place + "whole numbers [n], got float32 [3]"},
      {tensor_is(integers("tokens.a.offsets", {1, 3}, {0, 1, 2})),
       place + "whole numbers [n], got int64 [1, 3]"},
      {tensor_is({"tokens.a.text", "U8", {2}, "x\xff"}),
       "file: \"tokens.a.text\": expected UTF-8, got \"\\xff\" for token 1"},
      // A character cut in two by an offset.
      {tensor_is({"tokens.a.text", "U8", {2}, "é"}),
       "file: \"tokens.a.text\": expected UTF-8, got \"\\xc3\" for token 0"},
      {tensor_is({"tokens.a.text", "I8", {2}, "x\xff"}),
       "file: \"tokens.a.text\": expected bytes, got -1 at [1]"},
      {tensor_is(integers("tokens.a.text", {2}, {1, 256})),
       "file: \"tokens.a.text\": expected bytes, got 256 at [1]"},
      {tensor_is(zeros("tokens.a.text", "F16", {2}, 2)),
       "file: \"tokens.a.text\": expected whole numbers [n], got float16 [2]"},
      {tensor_is(integers("tokens.a.ids", {3}, {1, 2, 3})),
       "file: \"tokens.a.ids\": expected 2, one per token, got 3"},
      {tensor_is({"tokens.a.ids", "U64", {2}, std::string(16, '\xff')}),
       "file: tokens.a.ids: expected numbers below 2^63, since uint64 is read as int64, got "
       "18446744073709551615 as element 0 in the order of the file"},
  });
}

/// A message names the file once, also if the file's name is the beginning of the message.
TEST(RecordingMalformed, EveryMessageNamesTheFile) {
  RecordingParts parts = small_recording();
  parts.content["model"] = 1;
  const std::string bytes = recording_bytes(parts);
  const TensorFile file =
      TensorFile::from_memory(std::as_bytes(std::span(bytes)), FileFormat::kSafetensors, "fovea");
  EXPECT_EQ(message_of([&] { Recording::from_file(file); }),
            "fovea: fovea.model: expected a string, got 1");
  const Folder folder;
  const std::string path = folder.write("a: b.safetensors", bytes);
  EXPECT_EQ(message_of([&] { Recording::open(path); }),
            path + ": fovea.model: expected a string, got 1");
  EXPECT_THROW(Recording::open(folder / "none.safetensors"), IoError);
}

TEST(RecordingMalformed, TokenListsNeedNoDescription) {
  RecordingParts parts = small_recording();
  parts.content.erase("tokens");
  const std::string bytes = recording_bytes(parts);
  const Recording recording = open_recording(bytes);
  const RecordedAttention& attention = recording.attentions()[0];
  ASSERT_NE(recording.query_tokens(attention, 1), nullptr);
  EXPECT_EQ(recording.query_tokens(attention, 1)->texts[0], "é");
  EXPECT_EQ(recording.key_tokens(attention)->size(), 3);
}

TEST(RecordingMalformed, IsRecordingReturnsFalse) {
  const Folder folder;
  RecordingParts parts = small_recording();
  EXPECT_TRUE(is_recording(folder.write("a.safetensors", recording_bytes(parts))));
  // One metadata key identifies a recording. The rest of the file may be malformed.
  parts.version = "2";
  EXPECT_TRUE(is_recording(folder.write("b.safetensors", recording_bytes(parts, "{"))));
  EXPECT_FALSE(is_recording(folder.write("c.safetensors", safetensors_file("{}"))));
  EXPECT_FALSE(is_recording(folder.write("d.safetensors", "no tensors")));
  EXPECT_FALSE(is_recording(folder / "none"));
}

}  // namespace
}  // namespace fovea::test
