// SPDX-License-Identifier: Apache-2.0
//
// Targets and arguments of requests, and who may ask.

#include "view/api/arguments.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "view/http/security.h"
#include "view/http/sha256.h"

namespace fovea::view {
namespace {

/// Returns "STATUS: MESSAGE" of an HttpError, or "".
std::string refusal(const std::function<void()>& check) {
  try {
    check();
  } catch (const HttpError& error) {
    return fmt::format("{}: {}", error.status(), error.what());
  }
  return {};
}

TEST(ViewArguments, AreDecoded) {
  const Arguments arguments("text=a+b%20%C3%A9&n=7&range=2:5&list=3,1&word=max",
                            "n,list,text,absent,range,other,word");
  EXPECT_EQ(arguments.text("text"), "a b \u00e9");
  EXPECT_EQ(arguments.integer("n", 0, 7), 7);
  EXPECT_EQ(arguments.integer("absent", 0, 7, 3), 3);
  EXPECT_EQ(arguments.range("range", 5).begin, 2);
  EXPECT_EQ(arguments.range("other", 5).end, 5);
  EXPECT_EQ(arguments.integers("list", 3, 2), (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(arguments.choice("word", {"mean", "max"}), 1u);
}

TEST(ViewArguments, AreRefused) {
  for (const char* query : {"a", "=1", "a=%", "a=%g0", "a=%ff", "a=1&a=2", "a=1&&b=2"}) {
    EXPECT_EQ(refusal([&] { Arguments(query, "a,b"); }).substr(0, 5), "400: ") << query;
  }
  const Arguments arguments("n=-1&big=99999999999999999999&range=3:3&list=1,,2&word=sum&wide=0:5",
                            "n,big,range,list,word,none,wide");
  EXPECT_EQ(refusal([&] { arguments.integer("n", 0, 9); }), "400: n: expected 0 to 9, got -1");
  EXPECT_EQ(refusal([&] { arguments.integer("none", 0, 9); }),
            "400: none: expected 0 to 9, got none");
  EXPECT_NE(refusal([&] { arguments.integer("big", 0, 9); }), "");
  EXPECT_EQ(refusal([&] { arguments.range("range", 9); }),
            "400: range: expected FIRST:END with 0 <= FIRST < END <= 9, got \"3:3\"");
  EXPECT_NE(refusal([&] { arguments.integers("list", 9, 9); }), "");
  EXPECT_EQ(refusal([&] {
              arguments.choice("word", {"mean", "max"});
            }),
            "400: word: expected one of mean, max, got \"sum\"");
  EXPECT_EQ(refusal([&] { arguments.range("wide", 9, 4); }),
            "400: wide: expected at most 4 positions, got 5");
  for (const char* name : {"x", "a", "ab,c", "b,c"}) {
    EXPECT_EQ(refusal([&] { Arguments(fmt::format("{}=1", name), "ab,c"); }),
              fmt::format("400: {}: unknown argument", name));
  }
}

TEST(ViewArguments, PathsNameNoFiles) {
  EXPECT_EQ(parse_target("/").path, std::vector<std::string>{});
  EXPECT_EQ(parse_target("/map/a%20b/3.2?x=1").path,
            (std::vector<std::string>{"map", "a b", "3.2"}));
  EXPECT_EQ(parse_target("/map?x=1").query, "x=1");
  for (const char* target :
       {"/..", "/%2e%2e", "/a/../b", "//", "/a/", "/.", "/a%2fb", "/%00", "/%5c"}) {
    EXPECT_EQ(refusal([&] { parse_target(target); }).substr(0, 5), "404: ") << target;
  }
  for (const char* target : {"", "a", "*", "http://localhost/", "/%", "/%ff"}) {
    EXPECT_EQ(refusal([&] { parse_target(target); }).substr(0, 5), "400: ") << target;
  }
}

TEST(ViewArguments, PatternsMatchPaths) {
  const auto names = [](std::string_view pattern, std::string_view path) {
    return match_path(pattern, parse_target(path).path);
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names("/", "/"), Names{});
  EXPECT_EQ(names("/map/ID/HEAD", "/map/a/0.1"), (Names{"a", "0.1"}));
  EXPECT_EQ(names("/healthz", "/healthz"), Names{});
  for (const char* path : {"/", "/map", "/map/a", "/map/a/1", "/maps/a/0.1", "/map/a/0.1/x"}) {
    EXPECT_EQ(names("/map/ID/HEAD", path), std::nullopt) << path;
  }
}

TEST(ViewSecurity, OriginsOfFrames) {
  for (const char* origin :
       {"http://localhost:8888", "https://lab.example", "http://[::1]:1", "http://a:*"}) {
    EXPECT_EQ(mistake_in_origin(origin), "") << origin;
  }
  for (const char* origin :
       {"", "*", "http://", "localhost:1", "http://a/", "http://a b", "http://a;x", "http://*"}) {
    EXPECT_NE(mistake_in_origin(origin), "") << origin;
  }
}

TEST(ViewSecurity, TokensDiffer) {
  const std::string token = make_token();
  EXPECT_EQ(token.size(), 32u);
  EXPECT_NE(token, make_token());
  EXPECT_TRUE(same_secret(token, token));
  EXPECT_FALSE(same_secret(token, token.substr(1)));
  EXPECT_FALSE(same_secret("ab", "ac"));
}

// The examples of FIPS 180-4, and lengths around a block.
TEST(ViewSha256, Examples) {
  const auto hex = [](std::string_view text) {
    return fmt::format("{:02x}", fmt::join(sha256(text), ""));
  };
  EXPECT_EQ(hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(std::string(64, 'a')),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
  EXPECT_EQ(hex(std::string(55, 'a')),
            "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
}

}  // namespace
}  // namespace fovea::view
