// SPDX-License-Identifier: Apache-2.0
//
// Display width in terminal columns, and escaping of characters that are unsafe on a terminal.

#include "text/text_width.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/nearest.h"

namespace fovea {
namespace {

using testing::ElementsAre;

TEST(TextWidth, CountsColumnsNotBytes) {
  EXPECT_EQ(display_width(""), 0);
  EXPECT_EQ(display_width("step"), 4);
  EXPECT_EQ(display_width("é"), 1);
  EXPECT_EQ(display_width("e\u0301"), 1);  // e with a combining accent
  EXPECT_EQ(display_width("猫"), 2);
  EXPECT_EQ(display_width("👩‍👩‍👧"), 2);  // three people joined into one emoji
  EXPECT_EQ(display_width("❤️"), 2);              // a text symbol with emoji presentation
  EXPECT_EQ(display_width("🇫🇷"), 2);                  // two regional indicators: a flag
  EXPECT_EQ(display_width("مرحبا"), 5);
}

TEST(TextWidth, PadsAndFits) {
  EXPECT_EQ(pad_right("猫", 4), "猫  ");
  EXPECT_EQ(pad_left("猫", 4), "  猫");
  EXPECT_EQ(pad_left("long", 2), "long");
  EXPECT_EQ(fit("journey", 7), "journey");
  EXPECT_EQ(fit("journey", 5), "jour…");
  EXPECT_EQ(fit("猫猫猫", 4), "猫…");  // wide characters are not split
  EXPECT_EQ(display_width(fit("👩‍👩‍👧👩‍👩‍👧", 3)), 3);
}

TEST(TextWidth, MakesControlCharactersVisible) {
  EXPECT_EQ(visible("plain text"), "plain text");
  EXPECT_EQ(visible("\x1b[31mred"), "\\x1b[31mred");
  EXPECT_EQ(visible("a\nb\tc\rd"), "a\\nb\\tc\\x0dd");
  EXPECT_EQ(visible("\x7f\u0085"), "\\x7f\\x85");
  EXPECT_EQ(visible("a\u202eb\u2066c\u200fd"), "a\\u202eb\\u2066c\\u200fd");
  EXPECT_EQ(visible("\u2028"), "\\u2028");
  EXPECT_EQ(visible("a\xffz\xc3"), "a\\xffz\\xc3");
  EXPECT_EQ(visible("\u200e\u061c\u00ad\U000e0061\u3164\ufffe"),
            "\\u200e\\u061c\\xad\\ue0061\\u3164\\ufffe");
  EXPECT_EQ(visible("👩‍👩‍👧"), "👩‍👩‍👧");  // the joiner is kept
}

TEST(TextWidth, ValidatesUtf8) {
  EXPECT_TRUE(is_utf8("héllo 猫"));
  EXPECT_FALSE(is_utf8("\xff"));
  EXPECT_FALSE(is_utf8("\xc0\x80"));      // an overlong encoding of zero
  EXPECT_FALSE(is_utf8("\xed\xa0\x80"));  // half of a surrogate pair
  EXPECT_FALSE(is_utf8("ab\xc3"));
}

TEST(TextWidth, ByteOrderMarksBeginNoText) {
  EXPECT_EQ(without_byte_order_mark("\xEF\xBB\xBF"
                                    "a"),
            "a");
  EXPECT_EQ(without_byte_order_mark("a\xEF\xBB\xBF"), "a\xEF\xBB\xBF");
  EXPECT_EQ(without_byte_order_mark("\xEF\xBB"), "\xEF\xBB");
}

TEST(TextWidth, SplitsAtEveryKindOfSpace) {
  EXPECT_THAT(split_words("  Your journey\u00a0starts\n\twith\u3000one\u2028step "),
              ElementsAre("Your", "journey", "starts", "with", "one", "step"));
  EXPECT_THAT(split_words(" \n "), ElementsAre());
  EXPECT_THAT(wrap("one two three four", 9), ElementsAre("one two", "three", "four"));
  EXPECT_THAT(wrap("extraordinarily long", 5), ElementsAre("extra", "ordin", "arily", "long"));
  EXPECT_THAT(wrap("a extraordinary b", 6), ElementsAre("a", "extrao", "rdinar", "y b"));
  EXPECT_THAT(wrap("猫猫猫", 5), ElementsAre("猫猫", "猫"));  // wide characters are not split
  EXPECT_THAT(wrap("👩‍👩‍👧👩‍👩‍👧", 3),
              ElementsAre("👩‍👩‍👧", "👩‍👩‍👧"));
  EXPECT_THAT(wrap("猫", 1), ElementsAre("猫"));
}

TEST(Nearest, FindsTyposOnly) {
  const std::vector<std::string> words = {"scores", "weights", "context"};
  EXPECT_EQ(nearest("wieghts", words), "weights");
  EXPECT_EQ(nearest("SCORES", words), "scores");
  EXPECT_EQ(nearest("contxt", words), "context");
  EXPECT_EQ(nearest("hidden", words), std::nullopt);
  EXPECT_EQ(nearest("", words), std::nullopt);
  EXPECT_EQ(nearest(std::string(1000, 'w'), words), std::nullopt);
  EXPECT_EQ(did_you_mean("score", words), " (did you mean \"scores\"?)");
  EXPECT_EQ(did_you_mean("x", words), "");
}

}  // namespace
}  // namespace fovea
