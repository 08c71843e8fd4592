// SPDX-License-Identifier: Apache-2.0
//
// Maps characters to token numbers.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fovea::train {

/// Special tokens, and the number of the first character.
inline constexpr std::int64_t kPadding = 0, kBegin = 1, kEnd = 2, kFirstSymbol = 3;

/// A set of characters (code points) with their token numbers.
class Vocabulary {
 public:
  Vocabulary() = default;
  /// Numbers the characters in the given order. Throws InvalidArgument for duplicates.
  explicit Vocabulary(std::vector<std::string> symbols);
  /// Returns the characters of all texts, in code point order.
  static Vocabulary of(std::span<const std::string_view> texts);

  const std::vector<std::string>& symbols() const { return symbols_; }
  /// Returns the number of tokens, including the special ones.
  std::int64_t size() const { return kFirstSymbol + static_cast<std::int64_t>(symbols_.size()); }

  /// Returns the text's tokens, followed by kEnd. Throws InvalidArgument, naming the character, if
  /// one is unknown.
  std::vector<std::int64_t> tokens(std::string_view text) const;
  /// Returns the characters of the tokens before the first kEnd.
  std::string text(std::span<const std::int64_t> tokens) const;

 private:
  std::vector<std::string> symbols_;
  std::unordered_map<std::string, std::int64_t> numbers_;
};

}  // namespace fovea::train
