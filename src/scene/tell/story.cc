// SPDX-License-Identifier: Apache-2.0
//
// The complete story: the inputs, one word in detail (story_word.cc), and all words (story.h).

#include "scene/tell/story.h"

#include <algorithm>

#include <fmt/format.h>

#include "scene/read/step_catalogue.h"
#include "scene/tell/story_parts.h"
#include "scene/trace/asked.h"
#include "text/text_width.h"

namespace fovea::scene {
namespace {

Section tell_embeddings(const StoryParts& parts) {
  Section section = parts.section("Embeddings", "embeddings");
  parts.add_formulas(section, {"embeddings", "source_embeddings"});
  parts.add_matrices(section, "embeddings", parts.scene().source ? "words" : "");
  parts.add_matrices(section, "source_embeddings", "source");
  for (auto& block : section.blocks) {
    for (TableRow& row : std::get<Table>(block).rows) {
      if (row.focus) row.remark = "the query";
    }
  }
  const std::string& words = parts.scene().words.drawn;
  const std::string source = parts.scene().source ? parts.scene().source->drawn : "";
  if (!words.empty()) section.remarks.push_back(fmt::format("Drawn at random: {}.", words));
  if (!source.empty()) {
    section.remarks.push_back(fmt::format("The source is drawn at random: {}.", source));
  }
  section.notes = parts.notes({"tokens", "embeddings", "source_tokens", "source_embeddings"});
  return section;
}

/// Tells queries, keys and values, and the projections that they come from unless they are given.
Section tell_projections(const StoryParts& parts) {
  const bool direct = parts.scene().direct.has_value();
  Section section{
      "Queries, keys and values",
      direct ? "one row of numbers per word" : "query = x W_Q, key = x W_K, value = x W_V",
      "Three views of each word: what it asks for, what it can be found by, and what it "
      "passes on.",
      {},
      {},
      {}};
  parts.add_formulas(section, {"query", "key", "value"});
  parts.add_matrices(section, "query_weights", "W_Q");
  parts.add_matrices(section, "key_weights", "W_K");
  parts.add_matrices(section, "value_weights", "W_V");
  for (const char* step : {"query", "key", "value"}) parts.add_matrices(section, step, step);
  if (const std::string drawn = how_drawn(parts.scene()); !drawn.empty()) {
    section.remarks.push_back(fmt::format("Drawn at random: {}.", drawn));
  }
  std::vector<std::string> steps;
  if (direct) steps = {"tokens", "source_tokens"};
  steps.insert(steps.end(), {"query_weights", "key_weights", "value_weights", "query", "key",
                             "value", "focus.query", "focus.key", "focus.value"});
  section.notes = parts.notes(steps);
  return section;
}

Section tell_all(const StoryParts& parts) {
  Section section = parts.section("All words at once", "weights");
  section.formula =
      parts.many() ? "a picture of the weights" : "every query at once, in matrix form";
  if (auto attention = attention_formula(parts.scene())) {
    section.formulas.push_back(std::move(*attention));
  } else {
    parts.add_formulas(section, {"weights", "context"});
  }
  section.reading = "Each row shares out one word's attention; the stronger the shade, the more.";
  const std::vector<std::string> stages = {"scores", "scaled_scores", "softcapped_scores",
                                           "biased_scores", "masked_scores"};
  if (!parts.many()) {
    for (const std::string& stage : stages) {
      parts.add_matrices(section, stage, step_title(stage));
    }
  }
  const auto& normalizations = parts.scene().normalizations;
  for (const auto normalization : normalizations) {
    const std::string suffix = parts.suffix(normalization);
    if (parts.many() && !suffix.empty()) continue;
    parts.add_matrices(section, "weights" + suffix,
                       normalizations.size() > 1
                           ? fmt::format("Weights ({})", normalization_label(normalization))
                           : std::string("Weights"));
  }
  parts.add_matrices(section, "context", "Context");
  parts.add_matrices(section, "merged_context", "Merged context");
  for (Remark& remark : remarks_on_weights(parts.model())) {
    section.remarks.push_back(std::move(remark.text));
  }
  if (!parts.scene().focus) {
    if (const std::string scale = scale_remark(parts.model()); !scale.empty()) {
      section.remarks.push_back(scale);
    }
  }

  std::vector<std::string> steps = parts.weight_steps("");
  steps.insert(steps.end(), stages.begin(), stages.end());
  steps.insert(steps.end(), {"hidden", "context", "merged_context"});
  section.notes = parts.notes(steps);
  return section;
}

/// Returns the questions with their answers.
Section tell_questions(const StoryParts& parts) {
  Section section;
  section.title = english().plain("question.several");
  for (const AskedNumber& asked : asked_numbers(parts.model())) {
    section.remarks.push_back(fmt::format("{} {}: {}", visible(asked.question->ask),
                                          english().plain("question.answer"), asked.answer));
  }
  return section;
}

/// Returns whether the section shows a masked number.
bool shows_mask(const Section& section) {
  return std::ranges::any_of(section.blocks, [](const auto& block) {
    if (const auto* picture = std::get_if<Picture>(&block)) {
      const auto weights = picture->weights.template span<double>();
      return std::ranges::find(weights, -HUGE_VAL) != weights.end();
    }
    return std::ranges::any_of(std::get<Table>(block).rows, [](const TableRow& row) {
      return std::ranges::any_of(row.cells,
                                 [](const Cell& cell) { return cell.text == kMaskedMark; });
    });
  });
}

}  // namespace

Story tell_story(const Trace& trace) {
  const StoryParts parts(trace);
  Story story{
      visible(trace.scene.title), visible(summarize(trace.scene)), parts.notes({"scene"}), {}};
  const bool direct = trace.scene.direct.has_value();
  if (!direct) story.sections.push_back(tell_embeddings(parts));
  if (direct || trace.scene.projections) story.sections.push_back(tell_projections(parts));
  if (trace.scene.focus) {
    for (Section& section : tell_word(parts)) story.sections.push_back(std::move(section));
  }
  story.sections.push_back(tell_all(parts));
  if (!trace.scene.questions.empty()) story.sections.push_back(tell_questions(parts));
  const auto first = std::ranges::find_if(story.sections, shows_mask);
  if (first != story.sections.end()) {
    first->remarks.insert(first->remarks.begin(), english().plain("remark.masked"));
  }
  return story;
}

}  // namespace fovea::scene
