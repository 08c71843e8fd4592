// SPDX-License-Identifier: Apache-2.0
//
// Characters as numbers.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fovea::train {

/// Tokens that are no characters.
inline constexpr std::int64_t kPadding = 0, kBegin = 1, kEnd = 2, kFirstSymbol = 3;

/// The characters (code points) that texts are made of.
class Vocabulary {
 public:
  Vocabulary() = default;
  /// Distinct characters; numbers follow their order.
  explicit Vocabulary(std::vector<std::string> symbols);
  /// All of these texts, in the order of their code points.
  static Vocabulary of(std::span<const std::string_view> texts);

  const std::vector<std::string>& symbols() const { return symbols_; }
  /// How many tokens there are, with those that are no characters.
  std::int64_t size() const { return kFirstSymbol + static_cast<std::int64_t>(symbols_.size()); }

  /// The text's tokens, kEnd behind them. Throws InvalidArgument, with the unknown character.
  std::vector<std::int64_t> tokens(std::string_view text) const;
  /// The characters of tokens up to the first kEnd.
  std::string text(std::span<const std::int64_t> tokens) const;

 private:
  std::vector<std::string> symbols_;
  std::unordered_map<std::string, std::int64_t> numbers_;
};

}  // namespace fovea::train
