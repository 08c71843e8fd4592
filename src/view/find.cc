// SPDX-License-Identifier: Apache-2.0
//
// Search in tokens (find.h) with the automaton of Knuth, Morris and Pratt, which reads every byte
// once and needs no joined copy of the tokens.

#include "view/find.h"

#include <array>

namespace fovea::view {
namespace {

/// Returns the table that folds ASCII capitals, or changes nothing.
std::array<char, 256> folding(bool fold) {
  std::array<char, 256> table{};
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<char>(i);
  if (fold) {
    for (char c = 'A'; c <= 'Z'; ++c) {
      table[static_cast<std::size_t>(c)] = static_cast<char>(c - 'A' + 'a');
    }
  }
  return table;
}

}  // namespace

Found find_in_tokens(const std::vector<std::string>& tokens, std::string_view text,
                     const FindOptions& options) {
  const std::array<char, 256> folded = folding(options.fold);
  std::string needle(text);
  for (char& c : needle) c = folded[static_cast<unsigned char>(c)];
  // The length of the longest proper prefix of the needle that ends at each byte.
  std::vector<std::size_t> border(needle.size(), 0);
  for (std::size_t i = 1, length = 0; i < needle.size(); ++i) {
    while (length > 0 && needle[i] != needle[length]) length = border[length - 1];
    if (needle[i] == needle[length]) ++length;
    border[i] = length;
  }

  Found found;
  std::size_t matched = 0;  // bytes
  std::size_t read = 0;     // bytes of the tokens before the current one
  // The token in which the next match may begin, and its first byte.
  std::size_t begin = 0, begin_at = 0;
  std::int64_t last = -1;
  for (const std::string& token : tokens) {
    for (std::size_t i = 0; i < token.size(); ++i) {
      const char c = folded[static_cast<unsigned char>(token[i])];
      while (matched > 0 && c != needle[matched]) matched = border[matched - 1];
      if (c == needle[matched]) ++matched;
      if (matched < needle.size()) continue;
      matched = border[matched - 1];
      const std::size_t first = read + i + 1 - needle.size();
      while (begin_at + tokens[begin].size() <= first) begin_at += tokens[begin++].size();
      const auto position = static_cast<std::int64_t>(begin);
      if (position == last) continue;
      last = position;
      ++found.count;
      if (position > options.after && found.positions.size() < options.most) {
        found.positions.push_back(position);
      }
    }
    read += token.size();
  }
  return found;
}

}  // namespace fovea::view
