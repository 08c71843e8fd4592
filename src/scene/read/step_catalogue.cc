// SPDX-License-Identifier: Apache-2.0
//
// The table of steps (step_catalogue.h). New kinds of steps are added here first.

#include "scene/read/step_catalogue.h"

#include <algorithm>
#include <cassert>

#include <fmt/format.h>

namespace fovea::scene {
namespace {

constexpr std::string_view kFocus = "focus.";

/// Returns whether a step with this base name has variants such as "weights[sum]", one of them for
/// this normalization.
bool has_variant(std::string_view base, std::string_view normalization) {
  if (base == "weights" || base == "row_sums") return true;
  if (base == "shifted_scores") return normalization == "softmax";
  return base.starts_with("exponential") && normalization != "sum";
}

/// Returns whether a step belongs to the whole scene and has no row per query.
bool only_whole(std::string_view base) {
  return base.ends_with("_weights") || base.starts_with("source_");
}

}  // namespace

const std::vector<StepInfo>& step_catalogue() {
  static const std::vector<StepInfo> catalogue = {
      {"tokens", "Words", "", "The words, in order; everything else has one row for each."},
      {"embeddings", "Embeddings", "one row of numbers per word",
       "Each word enters as a row of numbers."},
      {"source_tokens", "Source words", "", "The words that keys and values are made from."},
      {"source_embeddings", "Source embeddings", "one row of numbers per source word",
       "Keys and values come from this other sequence."},
      {"query_weights", "Query weights", "W_Q", "Turns an embedding into what it asks for."},
      {"key_weights", "Key weights", "W_K", "Turns an embedding into what it can be found by."},
      {"value_weights", "Value weights", "W_V", "Turns an embedding into what it passes on."},
      {"query", "Queries", "query = embedding W_Q", "What each word asks for."},
      {"key", "Keys", "key = embedding W_K", "What each word can be found by."},
      {"value", "Values", "value = embedding W_V", "What each word passes on when it is found."},
      {"hidden", "Hidden layer", "hidden = tanh(query W + key U)",
       "A small network looks at query and key together."},
      {"scores", "Scores", "score[j] = query . key[j]", "How well does each word match?"},
      {"scaled_scores", "Scaled scores", "scaled = scale * score",
       "Scaling keeps long vectors from making large scores."},
      {"softcapped_scores", "Softcapped scores", "capped = c * tanh(scaled / c)",
       "No score can leave the range from -c to c."},
      {"biased_scores", "Biased scores", "biased = score + bias",
       "What the positions alone say is added."},
      {"masked_scores", "Masked scores", "masked = score where visible, else -inf",
       "A dot is a word that may not be seen: its weight will be exactly 0."},
      {"shifted_scores", "Shifted scores", "shifted[j] = score[j] - max",
       "The distance of each score to the largest of its row, so that no exponential overflows."},
      {"exponentials", "Exponentials", "exp(score[j])",
       "Positive numbers that grow faster than the scores; a masked word has exactly 0."},
      {"exponential_sums", "Sums of the exponentials", "sum of the exponentials",
       "Each exponential is divided by the sum of its row."},
      {"weights", "Weights", "weight[j] = exp(score[j]) / sum",
       "The share of attention that each word gets; a row adds up to one."},
      {"row_sums", "Sums of the weights", "sum of weight[j]", "One, up to rounding."},
      {"context", "Context", "context = sum of weight[j] * value[j]",
       "The values, mixed by their weights: what the word knows after looking around."},
      {"merged_context", "Merged context", "heads side by side",
       "The contexts of all heads, joined into one row per word."},
  };
  return catalogue;
}

std::string_view base_name(std::string_view name) {
  if (name.starts_with(kFocus)) name.remove_prefix(kFocus.size());
  return name.substr(0, name.find('['));
}

const StepInfo& step_info(std::string_view name) {
  const auto& catalogue = step_catalogue();
  const auto found = std::find_if(catalogue.begin(), catalogue.end(), [&](const StepInfo& info) {
    return info.name == base_name(name);
  });
  assert(found != catalogue.end());
  return *found;
}

bool is_softmax_part(std::string_view name) {
  const std::string_view base = base_name(name);
  return base == "shifted_scores" || base.starts_with("exponential");
}

bool is_step_name(std::string_view name) {
  const auto names = all_step_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<std::string> all_step_names() {
  std::vector<std::string> names;
  for (const std::string_view prefix : {std::string_view(), kFocus}) {
    for (const StepInfo& info : step_catalogue()) {
      if (!prefix.empty() && only_whole(info.name)) continue;
      names.push_back(fmt::format("{}{}", prefix, info.name));
      for (const std::string& normalization : normalization_names()) {
        if (!has_variant(info.name, normalization)) continue;
        names.push_back(fmt::format("{}{}[{}]", prefix, info.name, normalization));
      }
    }
  }
  return names;
}

const std::vector<std::string>& normalization_names() {
  static const std::vector<std::string> names = {"softmax", "softmax_unshifted", "sum"};
  return names;
}

std::string_view normalization_name(reference::Normalization normalization) {
  return normalization_names()[static_cast<std::size_t>(normalization)];
}

std::string_view normalization_label(reference::Normalization normalization) {
  switch (normalization) {
    case reference::Normalization::kSoftmax:
      return "softmax";
    case reference::Normalization::kSoftmaxUnshifted:
      return "naive softmax";
    case reference::Normalization::kSum:
      return "divided by sum";
  }
  return "";
}

std::string_view normalization_formula(reference::Normalization normalization) {
  switch (normalization) {
    case reference::Normalization::kSoftmax:
      return "weight[j] = exp(score[j] - max) / sum";
    case reference::Normalization::kSoftmaxUnshifted:
      return "weight[j] = exp(score[j]) / sum";
    case reference::Normalization::kSum:
      return "weight[j] = score[j] / sum";
  }
  return "";
}

std::string_view exponential_formula(reference::Normalization normalization) {
  return normalization == reference::Normalization::kSoftmax ? "exp(score[j] - max)"
                                                             : "exp(score[j])";
}

}  // namespace fovea::scene
