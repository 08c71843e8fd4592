// SPDX-License-Identifier: Apache-2.0
//
// Maps characters to token numbers (vocabulary.h).

#include "train/vocabulary.h"

#include <set>
#include <utility>

#include <fmt/format.h>

#include "fovea/error.h"

#include "text/text_width.h"

namespace fovea::train {

Vocabulary::Vocabulary(std::vector<std::string> symbols) : symbols_(std::move(symbols)) {
  for (const std::string& symbol : symbols_) {
    const auto number = kFirstSymbol + static_cast<std::int64_t>(numbers_.size());
    if (!numbers_.emplace(symbol, number).second) {
      throw InvalidArgument(
          fmt::format("symbols: expected each once, got \"{}\" again", visible(symbol)));
    }
  }
}

Vocabulary Vocabulary::of(std::span<const std::string_view> texts) {
  std::set<std::string_view> symbols;  // UTF-8 sorts bytewise in code point order
  for (const std::string_view text : texts) {
    for (const std::string_view symbol : code_points(text)) symbols.insert(symbol);
  }
  return Vocabulary(std::vector<std::string>(symbols.begin(), symbols.end()));
}

std::vector<std::int64_t> Vocabulary::tokens(std::string_view text) const {
  std::vector<std::int64_t> result;
  for (const std::string_view symbol : code_points(text)) {
    const auto found = numbers_.find(std::string(symbol));
    if (found == numbers_.end()) {
      throw InvalidArgument(
          fmt::format("expected characters that the model was trained on, got \"{}\" in \"{}\"",
                      visible(symbol), visible(text)));
    }
    result.push_back(found->second);
  }
  result.push_back(kEnd);
  return result;
}

std::string Vocabulary::text(std::span<const std::int64_t> tokens) const {
  std::string result;
  for (const std::int64_t token : tokens) {
    if (token == kEnd) break;
    if (token >= kFirstSymbol) result += symbols_[static_cast<std::size_t>(token - kFirstSymbol)];
  }
  return result;
}

}  // namespace fovea::train
