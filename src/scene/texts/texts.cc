// SPDX-License-Identifier: Apache-2.0
//
// Reads the texts of a language, which the build embeds (texts.h).

#include "scene/texts/texts.h"

#include <algorithm>
#include <cassert>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fovea/scene.h"

#include "core/fail.h"
#include "json/json_text.h"
#include "text/html_escape.h"

namespace fovea::scene {

// The files of this folder, embedded by the build.
extern const std::string_view kTextsEn;

namespace {

struct Language {
  std::string_view code;
  std::string_view json;
};

const std::vector<Language>& all_languages() {
  static const std::vector<Language> languages = {{"en", kTextsEn}};
  return languages;
}

/// Replaces each {name} by its value. Other braces stay.
std::string filled(std::string text, Texts::Values values) {
  for (const auto& [name, value] : values) {
    const std::string mark = fmt::format("{{{}}}", name);
    for (std::size_t at = text.find(mark); at != std::string::npos;
         at = text.find(mark, at + value.size())) {
      text.replace(at, mark.size(), value);
    }
  }
  return text;
}

}  // namespace

Texts::Texts(std::string_view language) : language_(language) {
  const auto& all = all_languages();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Language& one) { return one.code == language; });
  if (found == all.end()) {
    fail("language: expected one of {}, got \"{}\"", fmt::join(languages(), ", "), language);
  }
  const auto json = nlohmann::json::parse(found->json);
  for (const auto& [key, text] : json.items()) {
    texts_.emplace(key, text.get<std::string>());
  }
}

std::string Texts::plain(std::string_view key, Values values) const {
  const auto found = texts_.find(key);
  assert(found != texts_.end());
  return found == texts_.end() ? std::string(key) : filled(found->second, values);
}

std::string Texts::operator()(std::string_view key, Values values) const {
  return filled(html::escape(plain(key), html::Lines::kKeep), values);
}

std::string Texts::counted(std::string_view key, std::int64_t count) const {
  return plain(fmt::format("{}.{}", key, count == 1 ? "one" : "other"),
               {{"n", std::to_string(count)}});
}

std::string Texts::json() const {
  std::string out = "{";
  for (const auto& [key, text] : texts_) {
    out += fmt::format("{}{}:{}", out.size() > 1 ? "," : "", script_json_string(key),
                       script_json_string(text));
  }
  return out + "}";
}

std::vector<std::string> Texts::languages() {
  std::vector<std::string> codes;
  for (const Language& language : all_languages()) codes.emplace_back(language.code);
  return codes;
}

std::vector<std::string> page_languages() { return Texts::languages(); }

const Texts& english() {
  static const Texts texts("en");
  return texts;
}

}  // namespace fovea::scene
