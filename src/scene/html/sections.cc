// SPDX-License-Identifier: Apache-2.0
//
// Sections of the steps (sections.h).

#include "scene/html/sections.h"

#include <algorithm>

#include <fmt/format.h>

#include "scene/html/mathml.h"
#include "scene/read/step_catalogue.h"
#include "scene/tell/story.h"
#include "scene/trace/asked.h"
#include "text/html_escape.h"

namespace fovea::scene::html {
namespace {

/// Maximum number of matrices with remarks; the script shows only the remarks on chosen ones.
constexpr std::size_t kMaxPageRemarked = 64;
/// Returns whether a step is an input of attention rather than a result.
bool is_input(const Step& step) {
  const std::string_view base = base_name(step.name);
  return base.ends_with("tokens") || base.ends_with("embeddings") || base.ends_with("_weights") ||
         base == "query" || base == "key" || base == "value";
}

}  // namespace

bool is_focus(const Step& step) { return step.name.starts_with("focus."); }

std::vector<PageSection> StepSections::sections(bool inputs) const {
  std::vector<PageSection> result;
  for (const Step& step : model_.trace().steps) {
    if (is_focus(step) || base_name(step.name) == "row_sums" || is_softmax_part(step.name) ||
        is_input(step) != inputs) {
      continue;
    }
    result.push_back(section(step));
  }
  return result;
}

std::string StepSections::normalization_of(const Step& step) const {
  const auto& kinds = scene().normalizations;
  if (base_name(step.name) != "weights" || kinds.size() < 2) return "";
  for (const reference::Normalization kind : kinds) {
    if (step.name.find(fmt::format("[{}]", normalization_name(kind))) != std::string::npos) {
      return normalization_label(kind, texts_);
    }
  }
  return normalization_label(kinds.back(), texts_);
}

std::string StepSections::notes(const std::vector<std::string>& steps) const {
  std::string out;
  for (const auto& [name, note] : scene().notes) {
    if (std::find(steps.begin(), steps.end(), name) == steps.end()) continue;
    // The script hides a note on the word in focus when another word is chosen.
    out += fmt::format("<p class=\"note\"{}>{}</p>\n",
                       name.starts_with("focus.") ? " data-focus=\"\"" : "",
                       escape(note, Lines::kKeep));
  }
  return out;
}

std::string StepSections::questions(const std::vector<std::string>& steps) const {
  std::string out;
  int number = 0;
  for (const AskedNumber& asked : asked_numbers(model_)) {
    const Question& question = *asked.question;
    ++number;
    if (std::ranges::find(steps, model_.find(question.step)->name) == steps.end()) continue;
    out += fmt::format(
        "<div class=\"question\" id=\"question-{}\"><p class=\"ask\"><b>{}.</b> {}</p>\n", number,
        texts_("question.title", {{"n", std::to_string(number)}}),
        escape(question.ask, Lines::kKeep));
    if (!question.hint.empty()) {
      out += fmt::format("<details><summary>{}</summary><p class=\"hint\">{}</p></details>\n",
                         texts_("question.hint"), escape(question.hint, Lines::kKeep));
    }
    out += fmt::format("<details><summary>{}</summary><p>{}</p></details></div>\n",
                       texts_("question.answer"), escape(asked.answer));
  }
  return out;
}

std::string StepSections::questions() const {
  std::vector<std::string> steps;
  for (const Step& step : model_.trace().steps) steps.push_back(step.name);
  return questions(steps);
}

PageSection StepSections::section(const Step& step) const {
  PageSection out;
  out.id = step_id(step.name);
  out.steps = {step.name};
  const std::string how = normalization_of(step);
  out.title = fmt::format("{}{}{}", step_title(step.name, texts_),
                          how.empty() ? "" : texts_("list.colon"), how);
  out.formulas = {step_mathml(step.name, scene(), texts_)};
  out.reading = escape(step_reading(step.name, !scene().options.score.sinks.empty(), texts_));
  const std::string_view base = base_name(step.name);
  if (!step.words.empty()) {
    out.body = word_lists(step);
    return out;
  }
  const Step* sums = nullptr;
  if (base == "weights") {
    const std::string suffix = step.name.substr(base.size());
    for (const char* part : {"shifted_scores", "exponentials", "exponential_sums"}) {
      if (const Step* found = model_.find(part + suffix)) out.steps.push_back(found->name);
    }
    sums = model_.find("row_sums" + suffix);
    if (sums != nullptr) {
      out.steps.push_back(sums->name);
      out.formulas.push_back(step_mathml(sums->name, scene(), texts_));
    }
  }
  out.origin = drawn(base);
  out.body = heat_maps(model_, texts_, step, sums, maps_);
  if (&step == first_masked()) out.body += mask_legend(texts_);
  return out;
}

const Step* StepSections::first_masked() const {
  if (scene().focus) return nullptr;
  const auto found = std::ranges::find_if(model_.trace().steps, [&](const Step& step) {
    return step.words.empty() && !is_softmax_part(step.name) && model_.layout(step).maskable;
  });
  return found == model_.trace().steps.end() ? nullptr : &*found;
}

std::string StepSections::word_lists(const Step& step) const {
  std::string out;
  const auto length = static_cast<std::size_t>(step.shape[step.shape.rank() - 1]);
  for (std::size_t first = 0; first < step.words.size(); first += length) {
    out += fmt::format("<ol class=\"word-list\" start=\"0\" data-item=\"{}\">", first / length);
    for (std::size_t i = first; i < first + length; ++i) {
      out += fmt::format("<li>{}</li>", isolate(step.words[i]));
    }
    out += "</ol>\n";
  }
  return out;
}

std::string StepSections::drawn(std::string_view base) const {
  std::string how;
  if (base == "embeddings") how = scene().words.drawn;
  if (base == "source_embeddings" && scene().source) how = scene().source->drawn;
  if (const auto& direct = scene().direct) {
    if (base == "query") how = direct->query_drawn;
    if (base == "key") how = direct->key_drawn;
    if (base == "value") how = direct->value_drawn;
  }
  if (const auto& weights = scene().projections) {
    if (base == "query_weights") how = weights->query_drawn;
    if (base == "key_weights") how = weights->key_drawn;
    if (base == "value_weights") how = weights->value_drawn;
  }
  return how.empty() ? ""
                     : fmt::format("<p class=\"small drawn\">{}</p>\n",
                                   texts_("page.drawn", {{"how", escape(how)}}));
}

std::string StepSections::remarks() const {
  std::string out;
  for (const auto& [item, head, text] : remarks_on_weights(model_, kMaxPageRemarked, texts_)) {
    out += fmt::format("<li data-item=\"{}\"{}>{}</li>\n", item, head_data(head, scene().heads),
                       escape(text));
  }
  const std::string scale = scene().focus ? "" : scale_remark(model_, texts_);
  if (!scale.empty()) out += fmt::format("<li>{}</li>\n", escape(scale));
  return out.empty() ? "" : "<ul class=\"remarks\">\n" + out + "</ul>\n";
}

}  // namespace fovea::scene::html
