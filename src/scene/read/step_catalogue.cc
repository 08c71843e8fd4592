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
      {"tokens", ""},
      {"embeddings", "one row of numbers per word"},
      {"source_tokens", ""},
      {"source_embeddings", "one row of numbers per source word"},
      {"query_weights", "W_Q"},
      {"key_weights", "W_K"},
      {"value_weights", "W_V"},
      {"query", "query = embedding W_Q"},
      {"key", "key = embedding W_K"},
      {"value", "value = embedding W_V"},
      {"hidden", "hidden = tanh(query W + key U)"},
      {"scores", "score[j] = query . key[j]"},
      {"scaled_scores", "scaled = scale * score"},
      {"softcapped_scores", "capped = c * tanh(scaled / c)"},
      {"biased_scores", "biased = score + bias"},
      {"masked_scores", "masked = score where visible, else -inf"},
      {"shifted_scores", "shifted[j] = score[j] - max"},
      {"exponentials", "exp(score[j])"},
      {"exponential_sums", "sum of the exponentials"},
      {"weights", "weight[j] = exp(score[j]) / sum"},
      {"row_sums", "sum of weight[j]"},
      {"context", "context = sum of weight[j] * value[j]"},
      {"merged_context", "heads side by side"},
  };
  return catalogue;
}

std::string_view base_name(std::string_view name) {
  if (name.starts_with(kFocus)) name.remove_prefix(kFocus.size());
  return name.substr(0, name.find('['));
}

std::string canonical_name(std::string_view name) {
  const std::string suffix = fmt::format("[{}]", kNaive);
  if (!name.ends_with(suffix)) return std::string(name);
  name.remove_suffix(suffix.size());
  return fmt::format("{}[{}]", name,
                     normalization_name(reference::Normalization::kSoftmaxUnshifted));
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

std::string step_title(std::string_view name, const Texts& texts) {
  return texts.plain(fmt::format("step.{}.title", base_name(name)));
}

std::string step_reading(std::string_view name, bool sinks, const Texts& texts) {
  const std::string_view base = base_name(name);
  if (sinks && base == "weights") return texts.plain("step.weights.reading_sink");
  return texts.plain(fmt::format("step.{}.reading", base));
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

std::string normalization_label(reference::Normalization normalization, const Texts& texts) {
  return texts.plain(fmt::format("normalization.{}", normalization_name(normalization)));
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

reference::Normalization normalization_of(
    std::string_view step, std::span<const reference::Normalization> normalizations) {
  for (const reference::Normalization kind : normalizations) {
    if (step.ends_with(fmt::format("[{}]", normalization_name(kind)))) return kind;
  }
  return normalizations.back();
}

std::string_view exponential_formula(reference::Normalization normalization) {
  return normalization == reference::Normalization::kSoftmax ? "exp(score[j] - max)"
                                                             : "exp(score[j])";
}

}  // namespace fovea::scene
