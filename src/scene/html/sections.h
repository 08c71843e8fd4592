// SPDX-License-Identifier: Apache-2.0
//
// The sections of the steps for all words, of which pages and slides consist.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "scene/html/story.h"
#include "scene/html/table.h"
#include "scene/texts/texts.h"
#include "scene/trace/trace_model.h"

namespace fovea::scene::html {

/// Returns whether a step belongs to the word in focus.
bool is_focus(const Step& step);

class StepSections {
 public:
  /// Keeps references to the model and the texts.
  StepSections(const TraceModel& model, const Texts& texts, const MapOptions& maps = {})
      : model_(model), texts_(texts), maps_(maps) {}

  /// Returns the sections of the steps that go into attention.
  std::vector<PageSection> inputs() const { return sections(true); }
  /// Returns the sections of its results.
  std::vector<PageSection> results() const { return sections(false); }

  /// Returns a list of remarks on the weights, or "".
  std::string remarks() const;
  /// Returns the author's notes on the steps as paragraphs.
  std::string notes(const std::vector<std::string>& steps) const;
  /// Returns the questions about the steps, with hints and answers to unfold. The page's script
  /// replaces these.
  std::string questions(const std::vector<std::string>& steps) const;
  /// Returns the questions about all steps.
  std::string questions() const;
  /// Returns the label of a normalization: "divided by sum" for "weights[sum]". Plain weights get a
  /// label only if the scene has several normalizations.
  std::string normalization_of(const Step& step) const;

 private:
  const Scene& scene() const { return model_.scene(); }
  std::vector<PageSection> sections(bool inputs) const;
  PageSection section(const Step& step) const;
  /// Returns the first step that shows a mask if there is no story, which explains it otherwise.
  const Step* first_masked() const;
  std::string word_lists(const Step& step) const;
  /// Describes how randomly drawn numbers were generated.
  std::string drawn(std::string_view base) const;

  const TraceModel& model_;
  const Texts& texts_;
  MapOptions maps_;
};

}  // namespace fovea::scene::html
