// SPDX-License-Identifier: Apache-2.0
//
// Shared building blocks of a story: words, notes, and matrices as tables.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/scene.h"

#include "scene/tell/story.h"
#include "scene/trace/trace_model.h"

namespace fovea::scene {

class StoryParts {
 public:
  explicit StoryParts(const Trace& trace);

  const TraceModel& model() const { return model_; }
  const Scene& scene() const { return model_.scene(); }
  const Step* find(const std::string& name) const { return model_.find(name); }
  /// Returns whether tables are shortened and matrices become pictures.
  bool many() const { return many_; }

  /// Returns a section that begins with the formula and explanation of a step.
  Section section(const std::string& title, const std::string& step) const;

  /// Appends the formulas of those of the steps that the trace has.
  void add_formulas(Section& section, const std::vector<std::string>& steps) const;

  /// Returns the author's notes on these steps.
  std::vector<Note> notes(const std::vector<std::string>& steps) const;
  /// Returns the names of all weight steps, of their sums, and of the parts of softmax.
  std::vector<std::string> weight_steps(const std::string& prefix) const;
  /// Returns the step suffix of a normalization, such as "[sum]"; "" for the main one.
  std::string suffix(reference::Normalization normalization) const;

  /// Returns the words along an axis, escaped.
  std::vector<std::string> words(Axis axis, std::int64_t item) const;

  /// Adds the matrices of a step, one per head and batch item, as tables, or as pictures if there
  /// are many words. Does nothing if the scene does not have the step.
  void add_matrices(Section& target, const std::string& step, const std::string& caption) const;

 private:
  Table table(const StepLayout& layout, std::int64_t item, std::int64_t head) const;
  Picture picture(const StepLayout& layout, std::int64_t item, std::int64_t head) const;

  TraceModel model_;
  bool many_;
};

/// Returns the displayed positions out of `count`: all if there are at most `few`, otherwise the
/// first ones, the last ones and `keep`, with -1 for each gap.
std::vector<std::int64_t> shown_positions(std::int64_t count, std::int64_t few, std::int64_t keep);

/// Returns the sections about the focus word: its scores, weights and context.
std::vector<Section> tell_word(const StoryParts& parts);

}  // namespace fovea::scene
