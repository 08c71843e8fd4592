// SPDX-License-Identifier: Apache-2.0
//
// Pages in other languages: none of the page's own texts is left in English.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fovea/scene.h"

#include "scene/texts/texts.h"
#include "support/files.h"
#include "text/html_escape.h"

namespace fovea::scene {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// Removes every part from `start` to the next `end`.
std::string without(std::string text, std::string_view start, std::string_view end) {
  for (std::size_t at = 0; (at = text.find(start, at)) != std::string::npos;) {
    text.erase(at, text.find(end, at) + end.size() - at);
  }
  return text;
}

/// Returns the page of a scene without what does not depend on the language: style sheet, scripts,
/// the scene's own texts, and the names of steps and in formulas.
std::string visible_page(Scene scene, const std::string& language) {
  scene.notes.clear();
  scene.title = "-";
  for (auto& item : scene.words.tokens) std::ranges::fill(item, "-");
  std::string page = to_html(trace_scene(scene), {.language = language});
  page = without(std::move(page), "<style>", "</style>");
  page = without(std::move(page), "<script", "</script>");
  page = without(std::move(page), "<pre", "</pre>");
  page = without(std::move(page), "<tr class=\"held\">", "</th>");
  return without(std::move(page), "<mi>", "</mi>");
}

/// Returns the longest part of a text without placeholders.
std::string longest_part(const std::string& text) {
  std::string longest;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t open = std::min(text.find('{', at), text.size());
    if (open - at > longest.size()) longest = text.substr(at, open - at);
    at = std::min(text.find('}', open), text.size() - 1) + 1;
  }
  return longest;
}

/// Returns whether a page shows a text: a long part of it anywhere, a short text on its own.
bool shows(const std::string& page, const std::string& text) {
  constexpr std::size_t kLong = 12;
  const std::string part = html::escape(longest_part(text));
  if (part.size() >= kLong) return page.find(part) != std::string::npos;
  for (const char* before : {">", "label=\"", "title=\""}) {
    const std::string after = *before == '>' ? "<" : "\"";
    if (page.find(before + html::escape(text) + after) != std::string::npos) return true;
  }
  return false;
}

TEST(Languages, NoTextOfAPageIsLeftInEnglish) {
  const json english_texts = json::parse(english().json());
  for (const auto& path : test::example_scenes()) {
    const Scene scene = load_scene(path.string());
    int shown = 0;
    const std::string original = visible_page(scene, "en");
    for (const auto& [key, text] : english_texts.items()) {
      shown += shows(original, text.get<std::string>()) ? 1 : 0;
    }
    EXPECT_GT(shown, 30) << path;
    for (const std::string& language : page_languages()) {
      if (language == "en") continue;
      const Texts texts(language);
      const std::string page = visible_page(scene, language);
      EXPECT_THAT(page, HasSubstr("lang=\"" + language + "\" xml:lang=\"" + language + "\""));
      for (const auto& [key, value] : english_texts.items()) {
        const auto text = value.get<std::string>();
        const bool differs = texts.plain(key).find(longest_part(text)) == std::string::npos;
        if (!differs || key == "list.comma") continue;  // a comma is between words, too
        EXPECT_FALSE(shows(page, text)) << language << ": " << path << ": " << key << ": " << text;
      }
    }
  }
}

}  // namespace
}  // namespace fovea::scene
