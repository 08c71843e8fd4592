// SPDX-License-Identifier: Apache-2.0
//
// The texts that a reader sees: titles and readings of the steps, and everything that the page
// says. Each language is one file of this folder, so a translation needs no code.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fovea::scene {

class Texts {
 public:
  /// Names and values of the {placeholders} of a text.
  using Values = std::initializer_list<std::pair<std::string_view, std::string>>;

  /// Throws InvalidArgument, with the list of languages, for an unknown language code.
  explicit Texts(std::string_view language);

  const std::string& language() const { return language_; }

  /// Returns the text with its placeholders replaced. Requires a key of en.json.
  std::string plain(std::string_view key, Values values = {}) const;
  /// Returns the text as HTML: the text is escaped, the values are inserted as HTML.
  std::string operator()(std::string_view key, Values values = {}) const;
  /// Returns plain(KEY.one) if `count` is 1, otherwise plain(KEY.other), with {n} as the count.
  std::string counted(std::string_view key, std::int64_t count) const;

  /// Returns the texts as a JSON object for a page's script, except those whose keys begin with one
  /// of the prefixes.
  std::string json(std::initializer_list<std::string_view> without = {}) const;

  /// Returns the codes of all languages, English first.
  static std::vector<std::string> languages();

 private:
  std::string language_;
  const std::map<std::string, std::string, std::less<>>* texts_ = nullptr;
};

/// Returns the English texts.
const Texts& english();

}  // namespace fovea::scene
