// SPDX-License-Identifier: Apache-2.0
//
// Recordings and options in words (words.h).

#include "recording/words.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "problem/problem_shape.h"

namespace fovea::recording {
namespace {

template <class Number>
std::string some_of_numbers(const std::vector<Number>& numbers) {
  constexpr std::size_t kMaxShown = 4;
  const auto shown = std::span(numbers).first(std::min(numbers.size(), kMaxShown));
  std::string text = fmt::format("{}", fmt::join(shown, ", "));
  if (numbers.size() > kMaxShown) text += fmt::format(" and {} more", numbers.size() - kMaxShown);
  return text;
}

}  // namespace

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

std::string some_numbers(const std::vector<std::int64_t>& numbers) {
  return some_of_numbers(numbers);
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

std::string mask_words(const AttentionOptions& options) {
  if (options.mask.allows_all()) return "every query sees every key";
  std::string text = options.mask.to_string();
  if (!options.alignment.is_bottom_right()) text += "; " + alignment_words(options.alignment);
  return text;
}

std::string alignment_words(const Alignment& alignment) {
  return (alignment.values().size() == 1 ? "query 0 at key " : "queries 0 at keys ") +
         some_of_numbers(alignment.values());
}

std::string score_words(const ScoreOptions& score, std::int64_t head_dim) {
  std::string text = fmt::format("scale {:.6g}", score_scale(score, head_dim));
  if (score.softcap > 0.0) text += fmt::format(", softcap {}", score.softcap);
  if (score.bias.defined()) text += ", bias";
  if (score.alibi) text += ", ALiBi";
  if (score.relative) text += ", relative table";
  if (!score.sinks.empty()) text += ", sinks " + some_of_numbers(score.sinks);
  return text;
}

}  // namespace fovea::recording
