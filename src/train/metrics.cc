// SPDX-License-Identifier: Apache-2.0
//
// Metrics of translations (metrics.h).

#include "train/metrics.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string_view>
#include <vector>

#include "text/text_width.h"

namespace fovea::train {
namespace {

constexpr std::size_t kLongest = 6;
constexpr double kRecallWeight = 2.0 * 2.0;

/// Returns the text without white space.
std::string joined(std::string_view text) {
  std::string result;
  for (const std::string& word : split_words(text)) result += word;
  return result;
}

/// Returns the number of occurrences of each run of `length` characters.
std::map<std::string_view, std::int64_t> runs(std::string_view text, std::size_t length) {
  const std::vector<std::string_view> characters = code_points(text);
  std::map<std::string_view, std::int64_t> counts;
  for (std::size_t i = 0; i + length <= characters.size(); ++i) {
    const char* const begin = characters[i].data();
    const std::string_view last = characters[i + length - 1];
    ++counts[{begin, static_cast<std::size_t>(last.data() + last.size() - begin)}];
  }
  return counts;
}

struct Counts {
  double said = 0.0, wanted = 0.0, both = 0.0;
};

}  // namespace

double chrf(std::span<const std::string> texts, std::span<const std::string> references) {
  std::array<Counts, kLongest> counts{};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string text = joined(texts[i]), reference = joined(references[i]);
    for (std::size_t n = 0; n < kLongest; ++n) {
      const auto said = runs(text, n + 1), wanted = runs(reference, n + 1);
      for (const auto& [run, count] : said) {
        counts[n].said += static_cast<double>(count);
        const auto found = wanted.find(run);
        if (found != wanted.end()) {
          counts[n].both += static_cast<double>(std::min(count, found->second));
        }
      }
      for (const auto& [run, count] : wanted) counts[n].wanted += static_cast<double>(count);
    }
  }
  double precision = 0.0, recall = 0.0, orders = 0.0;
  for (const Counts& of : counts) {
    if (of.said == 0.0 || of.wanted == 0.0) continue;
    precision += of.both / of.said;
    recall += of.both / of.wanted;
    orders += 1.0;
  }
  if (precision + recall == 0.0) return 0.0;
  precision /= orders;
  recall /= orders;
  return 100.0 * (1.0 + kRecallWeight) * precision * recall / (kRecallWeight * precision + recall);
}

void Aligned::add(const Translation& translation, const Pair& pair) {
  for (const Origin& origin : pair.origins) {
    for (std::int64_t t = origin.target.first; t < origin.target.second; ++t) {
      if (t >= translation.weights.extent(0)) continue;
      std::int64_t strongest = 0;
      for (std::int64_t s = 1; s < translation.weights.extent(1); ++s) {
        if (translation.weights.value({t, s}) > translation.weights.value({t, strongest})) {
          strongest = s;
        }
      }
      ++counted;
      right += std::ranges::any_of(origin.source, [&](const Range& range) {
        return range.first <= strongest && strongest < range.second;
      });
    }
  }
}

}  // namespace fovea::train
