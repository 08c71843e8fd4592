// SPDX-License-Identifier: Apache-2.0
//
// Checksums of words in lower case; the numbers are those of zlib.crc32(word.lower().encode()) in
// Python.

#include "text/word_crc.h"

#include <gtest/gtest.h>

namespace fovea {
namespace {

TEST(WordCrc, EqualsPythons) {
  EXPECT_EQ(word_crc(""), 0U);
  EXPECT_EQ(word_crc("cat"), 2656977832U);
  EXPECT_EQ(word_crc("THE"), 1011183078U);
  EXPECT_EQ(word_crc("don't"), 103882927U);
  EXPECT_EQ(word_crc("猫"), 2245964304U);
}

TEST(WordCrc, IgnoresCaseInEveryScript) {
  EXPECT_EQ(word_crc("Cat"), word_crc("cat"));
  EXPECT_EQ(word_crc("Straße"), 2285851341U);
  EXPECT_EQ(word_crc("ÉCOLE"), 3305199058U);
  EXPECT_EQ(word_crc("Ǆ"), 3250156899U);
  EXPECT_EQ(word_crc("İstanbul"), 2800934769U);  // i with a combining dot
}

TEST(WordCrc, ASigmaAtTheEndOfAWordIsFinal) {
  EXPECT_EQ(word_crc("ΟΔΟΣ"), 97676704U);
  EXPECT_EQ(word_crc("ΑΣΑ"), 2479218064U);
  EXPECT_EQ(word_crc("Σ"), 2030701540U);  // not after a letter
  EXPECT_EQ(word_crc("ΛΌΓΟΣ."), 3514577240U);
  EXPECT_EQ(word_crc("«ΣΑΣ»"), 2364325689U);
  EXPECT_EQ(word_crc("AΣ'"), 2492649893U);
}

TEST(WordCrc, TextThatIsNotUtf8HasANumberToo) {
  EXPECT_EQ(word_crc("A\xff"), word_crc("a\xff"));
  EXPECT_NE(word_crc("a\xff"), word_crc("a\xfe"));
}

}  // namespace
}  // namespace fovea
