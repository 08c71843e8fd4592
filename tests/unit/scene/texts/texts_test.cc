// SPDX-License-Identifier: Apache-2.0
//
// The texts of the page: every translation has the keys and placeholders of the English file.

#include "scene/texts/texts.h"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fovea/error.h"
#include "fovea/scene.h"

namespace fovea::scene {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json texts_of(const std::string& language) { return json::parse(Texts(language).json()); }

std::multiset<std::string> placeholders(const std::string& text) {
  std::multiset<std::string> found;
  for (std::size_t at = text.find('{'); at != std::string::npos; at = text.find('{', at + 1)) {
    found.insert(text.substr(at, text.find('}', at) - at + 1));
  }
  return found;
}

TEST(Texts, EnglishIsTheFirstLanguage) {
  ASSERT_FALSE(page_languages().empty());
  EXPECT_EQ(page_languages().front(), "en");
  EXPECT_EQ(english().plain("language"), "en");
}

TEST(Texts, TranslationsHaveTheKeysAndPlaceholdersOfTheEnglishTexts) {
  const json original = texts_of("en");
  EXPECT_GT(original.size(), 100U);
  for (const std::string& language : page_languages()) {
    const json translated = texts_of(language);
    for (const auto& [key, text] : original.items()) {
      ASSERT_TRUE(translated.contains(key)) << language << ": " << key;
      const auto other = translated[key].get<std::string>();
      EXPECT_FALSE(other.empty() && !text.get<std::string>().empty()) << language << ": " << key;
      EXPECT_EQ(placeholders(other), placeholders(text.get<std::string>()))
          << language << ": " << key;
    }
    EXPECT_EQ(translated.size(), original.size()) << language;
    EXPECT_EQ(translated["language"], language);
  }
}

TEST(Texts, ReplacePlaceholders) {
  EXPECT_EQ(english().plain("place.head", {{"n", "3"}}), "head 3");
  EXPECT_EQ(english()("story.scores", {{"word", "<b>a</b>"}}), "Scores of <b>a</b>");
  EXPECT_EQ(english().counted("summary.words", 1), "1 word");
  EXPECT_EQ(english().counted("summary.words", 2), "2 words");
  // A value is not searched for placeholders.
  EXPECT_EQ(english().plain("remark.single.one", {{"query", "{key}"}, {"key", "{query}"}}),
            "{key} looks only at {query}.");
}

TEST(Texts, AnUnknownLanguageIsAnErrorWithTheKnownOnes) {
  try {
    Texts("tlh");
    FAIL() << "no exception";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected one of en"));
    EXPECT_THAT(error.what(), HasSubstr("\"tlh\""));
  }
}

}  // namespace
}  // namespace fovea::scene
