// SPDX-License-Identifier: Apache-2.0
//
// What a recording has (words.h).

#include "recording/words.h"

#include <iterator>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fovea::recording {

std::string ranges_words(const std::set<std::int64_t>& numbers) {
  std::string text;
  for (auto first = numbers.begin(); first != numbers.end();) {
    auto last = first;
    while (std::next(last) != numbers.end() && *std::next(last) == *last + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", *first);
    if (last != first) text += fmt::format(" to {}", *last);
    first = std::next(last);
  }
  return text;
}

std::string recorded_words(const Recording& recording) {
  std::set<std::int64_t> layers;
  std::set<AttentionKind> kinds;
  for (const RecordedAttention& attention : recording.attentions()) {
    layers.insert(attention.layer);
    kinds.insert(attention.kind);
  }
  if (layers.empty()) return "no attention";
  std::string text =
      fmt::format("{} {}", layers.size() == 1 ? "layer" : "layers", ranges_words(layers));
  if (kinds == std::set{AttentionKind::kSelf}) return text;
  std::vector<std::string_view> names;
  for (const AttentionKind kind : kinds) names.push_back(attention_kind_name(kind));
  return text + fmt::format(" of {}", fmt::join(names, ", "));
}

}  // namespace fovea::recording
