// SPDX-License-Identifier: Apache-2.0
//
// Spelling suggestions by optimal string alignment distance (nearest.h).

#include "text/nearest.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "text/text_width.h"

namespace fovea {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

/// Returns the optimal string alignment distance, in bytes.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const std::size_t replace = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({replace, d[i - 1][j] + 1, d[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates) {
  constexpr std::size_t kLongestWord = 64;  // longer words are not treated as misspellings
  if (word.size() > kLongestWord) return std::nullopt;
  std::optional<std::string> best;
  std::size_t least = 1 + std::max<std::size_t>(1, word.size() / 3);
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongestWord) continue;
    const std::size_t edits = distance(lower(word), lower(candidate));
    if (edits < least && edits < candidate.size()) {
      least = edits;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const auto best = nearest(word, candidates);
  return best ? fmt::format(" (did you mean \"{}\"?)", visible(*best)) : std::string();
}

}  // namespace fovea
