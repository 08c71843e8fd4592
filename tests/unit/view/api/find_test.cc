// SPDX-License-Identifier: Apache-2.0
//
// Search in tokens against std::string::find in the joined text.

#include "view/api/find.h"

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace fovea::view {
namespace {

std::string lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

/// Returns the tokens in which a match begins.
std::vector<std::int64_t> expected_positions(const std::vector<std::string>& tokens,
                                             std::string text, bool fold) {
  std::string joined;
  std::vector<std::int64_t> token_of_byte;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    joined += tokens[i];
    token_of_byte.resize(joined.size(), static_cast<std::int64_t>(i));
  }
  if (fold) {
    joined = lower_case(joined);
    text = lower_case(text);
  }
  std::set<std::int64_t> positions;
  for (std::size_t at = joined.find(text); at != std::string::npos;
       at = joined.find(text, at + 1)) {
    positions.insert(token_of_byte[at]);
  }
  return {positions.begin(), positions.end()};
}

TEST(ViewFind, AgreesWithTheJoinedText) {
  std::mt19937 random(42);
  const auto draw = [&random](std::size_t most) {
    std::string text(random() % (most + 1), ' ');
    for (char& c : text) c = "aAbB"[random() % 4];
    return text;
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> tokens(random() % 60);
    for (std::string& token : tokens) token = draw(4);  // also empty ones
    const std::string text = draw(5) + "a";
    for (const bool fold : {false, true}) {
      const std::vector<std::int64_t> expected = expected_positions(tokens, text, fold);
      const Found found = find_in_tokens(tokens, text, {.fold = fold});
      ASSERT_EQ(found.positions, expected) << text;
      ASSERT_EQ(found.count, static_cast<std::int64_t>(expected.size()));
    }
  }
}

TEST(ViewFind, ReturnsSomePositionsAndCountsAll) {
  const std::vector<std::string> tokens(50, "cat");
  const Found found = find_in_tokens(tokens, "cat", {.after = 9, .most = 3});
  EXPECT_EQ(found.count, 50);
  EXPECT_EQ(found.positions, (std::vector<std::int64_t>{10, 11, 12}));
}

TEST(ViewFind, FoldsOnlyLettersOfAscii) {
  const std::vector<std::string> tokens = {"[", "\u00c9", "{", "K"};
  EXPECT_EQ(find_in_tokens(tokens, "{", {.fold = true}).positions, std::vector<std::int64_t>{2});
  EXPECT_EQ(find_in_tokens(tokens, "\u00e9", {.fold = true}).count, 0);
  EXPECT_EQ(find_in_tokens(tokens, "k", {.fold = true}).positions, std::vector<std::int64_t>{3});
}

}  // namespace
}  // namespace fovea::view
