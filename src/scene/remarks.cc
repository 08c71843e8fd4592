// SPDX-License-Identifier: Apache-2.0
//
// Sentences that are computed from the numbers, never canned.

#include <cmath>

#include <fmt/format.h>

#include "scene/story.h"
#include "scene/text_width.h"

namespace fovea::scene {
namespace {

std::string plural(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string word(const std::vector<std::string>& words, std::int64_t i) {
  return '"' + visible(words[static_cast<std::size_t>(i)]) + '"';
}

/// "a", "b" and 3 more
std::string some_words(const std::vector<std::string>& words,
                       const std::vector<std::int64_t>& which) {
  constexpr std::size_t kShown = 3;
  std::string list;
  for (std::size_t i = 0; i < which.size() && i < kShown; ++i) {
    const bool last = i + 1 == which.size();
    list += (i == 0 ? "" : last ? " and " : ", ") + word(words, which[i]);
  }
  if (which.size() > kShown) list += fmt::format(" and {} more", which.size() - kShown);
  return list;
}

struct RowFacts {
  double most = 0.0;
  std::int64_t where = -1;
  std::int64_t looked_at = 0;  // keys with any weight
  double entropy = 0.0;
  bool has_nan = false;
};

RowFacts look_at_row(const TensorView& row) {
  RowFacts facts;
  for (std::int64_t j = 0; j < row.extent(0); ++j) {
    const double weight = row.value({j});
    if (std::isnan(weight)) facts.has_nan = true;
    if (weight > facts.most) {
      facts.most = weight;
      facts.where = j;
    }
    if (weight != 0.0) ++facts.looked_at;
    if (weight > 0) facts.entropy -= weight * std::log(weight);
  }
  return facts;
}

}  // namespace

std::vector<std::string> remarks_on_weights(const TensorView& weights,
                                            const std::vector<std::string>& queries,
                                            const std::vector<std::string>& keys, int precision) {
  std::vector<std::string> remarks;
  std::vector<std::int64_t> blind, broken, single;
  std::int64_t strongest = -1;
  std::int64_t most_even = -1;
  std::vector<RowFacts> facts;
  for (std::int64_t i = 0; i < weights.extent(0); ++i) {
    facts.push_back(look_at_row(weights[i]));
    const RowFacts& row = facts.back();
    if (row.has_nan) {
      broken.push_back(i);
    } else if (row.where < 0) {
      blind.push_back(i);
    } else {
      if (row.looked_at == 1) {
        single.push_back(i);
        continue;
      }
      const auto better = [&](std::int64_t best, auto value) {
        return best < 0 || value(row) > value(facts[static_cast<std::size_t>(best)]);
      };
      if (better(strongest, [](const RowFacts& r) { return r.most; })) strongest = i;
      if (better(most_even, [](const RowFacts& r) { return r.entropy; })) most_even = i;
    }
  }
  if (!broken.empty()) {
    remarks.push_back(fmt::format(
        "Not a number: the weights of {}; an exponential or a sum left the range of numbers.",
        some_words(queries, broken)));
  }
  if (!blind.empty()) {
    remarks.push_back(
        fmt::format("{} may see nothing: weights and context are 0.", some_words(queries, blind)));
  }
  if (weights.extent(1) < 2) return remarks;
  if (strongest >= 0) {
    const RowFacts& row = facts[static_cast<std::size_t>(strongest)];
    const bool itself = queries == keys && row.where == strongest;
    remarks.push_back(fmt::format("Strongest link: {} looks at {} ({:.{}f}).",
                                  word(queries, strongest),
                                  itself ? "itself" : word(keys, row.where), row.most, precision));
  }
  if (most_even >= 0 && weights.extent(0) > 1 && most_even != strongest) {
    const RowFacts& row = facts[static_cast<std::size_t>(most_even)];
    remarks.push_back(fmt::format("Most even: {}, spread as if over {:.1f} words.",
                                  word(queries, most_even), std::exp(row.entropy)));
  }
  if (!single.empty()) {
    const RowFacts& row = facts[static_cast<std::size_t>(single[0])];
    const bool itself = queries == keys && row.where == single[0];
    remarks.push_back(single.size() > 1
                          ? fmt::format("{} look at one word only.", some_words(queries, single))
                          : fmt::format("{} looks only at {}.", word(queries, single[0]),
                                        itself ? "itself" : word(keys, row.where)));
  }
  return remarks;
}

std::string summarize(const Scene& scene) {
  const std::int64_t dim = scene.words.embeddings.extent(2);
  std::string text = plural(scene.words.length(), "word");
  if (scene.batched)
    text += " in " + plural(static_cast<std::int64_t>(scene.words.tokens.size()), "batch item");
  text += fmt::format(", {} each", plural(dim, "number"));
  if (scene.source)
    text += fmt::format(", looking at {}", plural(scene.source->length(), "source word"));
  text += "; ";
  text += std::holds_alternative<reference::DotScore>(scene.score_kind)       ? "dot-product"
          : std::holds_alternative<reference::GeneralScore>(scene.score_kind) ? "general"
                                                                              : "additive";
  text += " scores, ";
  text += scene.scale_text == "1" ? "not scaled" : "scaled by " + scene.scale_text;
  const ScoreOptions& score = scene.options.score;
  if (score.softcap > 0) text += fmt::format(", softcapped at {}", score.softcap);
  if (score.bias.defined()) text += ", biased";
  if (score.alibi) text += ", ALiBi";
  if (score.relative) text += ", relative positions";
  if (!score.sinks.empty()) text += ", with a sink";
  if (scene.heads > 1) text += ", " + plural(scene.heads, "head");
  if (scene.kv_heads != scene.heads) {
    text += fmt::format(" sharing {}", plural(scene.kv_heads, "key head"));
  }
  text += scene.projections
              ? fmt::format(", {} weights", scene.projections->drawn.empty() ? "given" : "random")
              : ", no trained weights";
  if (!scene.options.mask.allows_all()) {
    text += fmt::format("; mask: {}", scene.options.mask.to_string());
  }
  if (scene.arithmetic == DType::kFloat32) text += "; float32";
  return text;
}

}  // namespace fovea::scene
