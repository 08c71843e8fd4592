// SPDX-License-Identifier: Apache-2.0
//
// Error messages for a scene's author: each names the place, the expected and the actual value.
// Most are listed in tests/data/malformed_scenes.txt.

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/error.h"
#include "fovea/scene.h"

namespace fovea::scene {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string message_of(const std::string& json) {
  try {
    parse_scene(json);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(SceneErrors, EveryMalformedSceneHasItsMessage) {
  std::ifstream file(FOVEA_TEST_DATA "/malformed_scenes.txt");
  ASSERT_TRUE(file);
  int count = 0;
  std::string line, scene;
  while (std::getline(file, line)) {
    if (line.starts_with("  => ")) {
      EXPECT_EQ(message_of(scene), line.substr(5)) << scene;
      ++count;
    } else if (!line.empty() && line[0] != '#') {
      scene = line;
    }
  }
  EXPECT_GE(count, 60);
  RecordProperty("malformed_scenes", count);
}

TEST(SceneErrors, InvalidJson) {
  EXPECT_EQ(message_of(""), "scene: expected a JSON object, got nothing");
  EXPECT_EQ(message_of(" \n\t"), "scene: expected a JSON object, got nothing");
  EXPECT_THAT(message_of("{\n  \"title\": \"x\"\n  \"text\": \"y\"\n}"),
              StartsWith("title: expected JSON in UTF-8; line 3, column 8: "));
  EXPECT_THAT(message_of("{\"title\": \"\xff\xfe\"}"), HasSubstr("ill-formed UTF-8 byte"));
  EXPECT_THAT(message_of("{\"title\": \"caf\xe9\"}"), HasSubstr("ill-formed UTF-8 byte"));
  EXPECT_EQ(message_of(std::string("\xff\xfe{\0}\0", 6)),
            "scene: expected JSON in UTF-8, got a zero as byte 4");
  EXPECT_EQ(message_of(std::string("{\"title\": \"a\0b\"}", 16)),
            "scene: expected JSON in UTF-8, got a zero as byte 13");
  EXPECT_EQ(message_of(std::string("{\"text\": \"a\"}\0 {", 16)),
            "scene: expected JSON in UTF-8, got a zero as byte 14");
}

TEST(SceneErrors, MessagesContainNoControlCharacters) {
  for (const char* json : {"{\"\\u001b[31mred\\u0007\": 1}", "{\"title\": \"\x1b[2J\"}",
                           "{\"text\": \"a\", \"seed\": \"\\u001b]0;owned\\u0007\"}",
                           "{\"tok\\u202eens\": 1}", "\x1b[2J", "{\"a\": \xff\x1b}"}) {
    const std::string message = message_of(json);
    EXPECT_NE(message, "no error") << json;
    for (const char c : message) {
      EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) << message;
    }
    EXPECT_THAT(message, testing::Not(HasSubstr("\u202e")));
    EXPECT_THAT(message, testing::Not(HasSubstr("\xff")));
  }
}

TEST(SceneErrors, LongQuotedTextIsTruncated) {
  const std::string word(100000, 'x');
  EXPECT_LT(message_of("{\"seed\": \"" + word + "\", \"text\": \"a\"}").size(), 300U);
  EXPECT_LT(message_of("{\"" + word + "\": 1}").size(), 500U);
  EXPECT_LT(message_of("[" + word).size(), 500U);
}

TEST(SceneErrors, DeepNestingIsRejected) {
  const std::string deep(200000, '[');
  EXPECT_THAT(message_of("{\"embeddings\": " + deep), StartsWith("embeddings[0]"));
  EXPECT_THAT(message_of("{\"embeddings\": " + deep),
              HasSubstr("expected at most 32 levels of nesting, got more"));
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_THAT(message_of(objects), HasSubstr("expected at most 32 levels of nesting, got more"));
}

TEST(SceneErrors, HugeScenesAreRejected) {
  const std::string too_long(static_cast<std::size_t>(kMaxFileBytes) + 1, ' ');
  EXPECT_EQ(message_of(too_long),
            "scene: expected at most 16777216 bytes, since every step is kept and shown, got "
            "16777217");
  std::string words = "a";
  for (int i = 1; i <= 1024; ++i) words += " a";
  EXPECT_EQ(message_of("{\"seed\": 1, \"text\": \"" + words +
                       "\", \"embeddings\": {\"draw\": \"rand\", \"dim\": 2}}"),
            "text: expected at most 1024 tokens, got 1025");
  words = "a";
  for (int i = 1; i < 1024; ++i) words += " a";
  EXPECT_EQ(message_of("{\"seed\": 1, \"text\": \"" + words +
                       "\", \"heads\": 8, \"embeddings\": {\"draw\": \"rand\", \"dim\": 8}}"),
            "scene: expected at most 4194304 scores (batch * heads * queries * keys), since every "
            "step is kept, got 8388608");
  std::string keys = "{";
  for (int i = 0; i < 5000; ++i) keys += "\"k" + std::to_string(i) + "\": 0, ";
  EXPECT_THAT(message_of(keys), HasSubstr("expected at most 256 keys in an object, got more"));
}

TEST(SceneErrors, RandomNumbersAndRulesAreLimited) {
  const auto drawn = [](const std::string& rest) {
    return message_of("{\"text\": \"a b\", \"seed\": 1, \"embeddings\": {\"draw\": \"rand\", " +
                      rest + "}");
  };
  EXPECT_EQ(drawn("\"dim\": 4096}, \"projections\": {\"draw\": \"rand\", \"dim\": 4096}"),
            "projections: expected at most 4194304 numbers to draw, got [4096, 4096] of them");
  EXPECT_EQ(
      drawn("\"dim\": 8}, \"score\": {\"kind\": \"additive\", \"query_weights\": {\"draw\": "
            "\"rand\", \"dim\": 4096}, \"key_weights\": {\"draw\": \"rand\"}, \"v\": {\"draw\": "
            "\"rand\"}}"),
      "no error");
  std::string rules = "[\"causal\"";
  for (int i = 0; i < 100000; ++i) rules += ", \"causal\"";
  EXPECT_EQ(
      drawn("\"dim\": 2}, \"mask\": {\"any\": " + rules + "]}"),
      "mask.any: expected at most 64 rules, got more; many documents are one rule, and so is any "
      "boolean tensor");
}

TEST(SceneErrors, FileErrorsNameThePath) {
  const auto load = [](const std::string& path) -> std::string {
    try {
      load_scene(path);
    } catch (const IoError& error) {
      return std::string("IoError ") + error.what();
    } catch (const InvalidArgument& error) {
      return std::string("InvalidArgument ") + error.what();
    }
    return "no error";
  };
  const std::string folder = testing::TempDir();
  EXPECT_EQ(load(folder + "/no_such_scene.json"),
            "IoError " + folder + "/no_such_scene.json: cannot be read: No such file or directory");
  EXPECT_EQ(load(folder), "IoError " + folder + ": expected a file, got a directory");
  const std::string path = folder + "/broken_scene.json";
  std::ofstream(path) << "{\"tokens\": []}";
  EXPECT_EQ(load(path),
            "InvalidArgument " + path + ": tokens: expected at least one token, got none");
  std::filesystem::remove(path);
}

TEST(SceneErrors, UnknownQueries) {
  Scene none;
  EXPECT_THAT([&] { set_focus(none, "a"); },
              testing::ThrowsMessage<InvalidArgument>(
                  "scene: expected at least one token in words, got none"));
  Scene scene = parse_scene(
      R"({"tokens": ["Your", "journey", "a", "a"], "embeddings": [[1], [2], [3], [4]]})");
  const auto query = [&](const char* word) -> std::string {
    try {
      set_focus(scene, word);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "focus " + std::to_string(scene.focus->index);
  };
  EXPECT_EQ(query("journey"), "focus 1");
  EXPECT_EQ(query("@3"), "focus 3");
  EXPECT_EQ(query("@-4"), "focus 0");
  EXPECT_EQ(query("@-1"), "focus 3");
  EXPECT_EQ(
      query("1"),
      "no word \"1\" in the scene; its words are: Your, journey, a, a (did you mean the index "
      "@1?)");
  EXPECT_EQ(query("4"), "no word \"4\" in the scene; its words are: Your, journey, a, a");
  EXPECT_EQ(query("jorney"),
            "no word \"jorney\" in the scene; its words are: Your, journey, a, a (did you mean "
            "\"journey\"?)");
  EXPECT_EQ(query("a"),
            "the word \"a\" occurs 2 times; say which one by its index, counted from 0: @2, @3");
  for (const char* wrong : {"@4", "@-5", "@", "@1x", "@+1", "@99999999999999999999", "@1:0"}) {
    EXPECT_EQ(query(wrong), "query: expected an index from @0 to @3, or @-1 for the last, got \"" +
                                std::string(wrong) + "\"");
  }
  EXPECT_EQ(scene.focus->index, 3);  // a failed call leaves the focus unchanged
}

TEST(SceneErrors, InvalidSentences) {
  const auto explain = [](std::string_view text, const SentenceOptions& options) -> std::string {
    try {
      scene_from_sentence(text, options);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(explain("one two", {}), "no error");
  EXPECT_EQ(explain(" \u00a0\u3000\n", {}), "text: expected at least one word, got none");
  EXPECT_EQ(explain("caf\xe9", {}), "text: expected UTF-8, got \"caf\\xe9\"");
  EXPECT_EQ(explain("one two", {.dim = 0}),
            "embeddings.dim: expected a whole number from 1 to 4096, got 0");
  EXPECT_EQ(explain("one two", {.dim = 3, .heads = 2}),
            "embeddings: expected a number of columns that 2 heads can share, got 3");
  EXPECT_EQ(explain("one two", {.seed = std::uint64_t{1} << 32}),
            "seed: expected a whole number from 0 to 4294967295, got 4294967296");
}

}  // namespace
}  // namespace fovea::scene
