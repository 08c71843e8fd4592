// SPDX-License-Identifier: Apache-2.0
//
// Reads the texts of a language, which the build embeds (texts.h).

#include "scene/texts/texts.h"

#include <algorithm>
#include <cassert>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fovea/scene.h"

#include "core/fail.h"
#include "json/json_text.h"
#include "text/html_escape.h"

namespace fovea::scene {

// The files *.json of this folder, joined and embedded by the build.
extern const std::string_view kTexts;

namespace {

using LanguageTexts = std::map<std::string, std::string, std::less<>>;

/// Returns the texts of each language, English first.
const std::vector<LanguageTexts>& all_languages() {
  static const std::vector<LanguageTexts> languages = [] {
    std::vector<LanguageTexts> read;
    std::istringstream in{std::string(kTexts)};
    while (in >> std::ws && in.peek() != std::istringstream::traits_type::eof()) {
      nlohmann::json json;
      in >> json;
      read.push_back(json.get<LanguageTexts>());
    }
    std::stable_partition(read.begin(), read.end(),
                          [](const LanguageTexts& one) { return one.at("language") == "en"; });
    return read;
  }();
  return languages;
}

/// Replaces each {name} by its value, in one pass, so that values are never searched. Other braces
/// stay.
std::string filled(std::string_view text, Texts::Values values) {
  std::string out;
  while (!text.empty()) {
    const std::size_t open = text.find('{');
    out += text.substr(0, open);
    if (open == std::string_view::npos) break;
    text.remove_prefix(open);
    const std::string_view name = text.substr(1, text.find('}') - 1);
    const auto* const found = std::find_if(values.begin(), values.end(),
                                           [&](const auto& value) { return value.first == name; });
    out += found == values.end() ? "{" : found->second;
    text.remove_prefix(found == values.end() ? 1 : name.size() + 2);
  }
  return out;
}

}  // namespace

Texts::Texts(std::string_view language) : language_(language) {
  for (const LanguageTexts& one : all_languages()) {
    if (one.at("language") == language) texts_ = &one;
  }
  if (texts_ == nullptr) {
    fail("language: expected one of {}, got \"{}\"", fmt::join(languages(), ", "), language);
  }
}

std::string Texts::plain(std::string_view key, Values values) const {
  const auto found = texts_->find(key);
  assert(found != texts_->end());
  return found == texts_->end() ? std::string(key) : filled(found->second, values);
}

std::string Texts::operator()(std::string_view key, Values values) const {
  return filled(html::escape(plain(key), html::Lines::kKeep), values);
}

std::string Texts::counted(std::string_view key, std::int64_t count) const {
  return plain(fmt::format("{}.{}", key, count == 1 ? "one" : "other"),
               {{"n", std::to_string(count)}});
}

std::string Texts::json(std::initializer_list<std::string_view> without) const {
  std::string out = "{";
  for (const auto& [key, text] : *texts_) {
    // Clang 14 captures no structured bindings by themselves.
    const auto starts = [&name = key](std::string_view prefix) { return name.starts_with(prefix); };
    if (std::ranges::any_of(without, starts)) continue;
    out += fmt::format("{}{}:{}", out.size() > 1 ? "," : "", script_json_string(key),
                       script_json_string(text));
  }
  return out + "}";
}

std::vector<std::string> Texts::languages() {
  std::vector<std::string> codes;
  for (const LanguageTexts& one : all_languages()) codes.push_back(one.at("language"));
  return codes;
}

std::vector<std::string> page_languages() { return Texts::languages(); }

const Texts& english() {
  static const Texts texts("en");
  return texts;
}

}  // namespace fovea::scene
