// SPDX-License-Identifier: Apache-2.0
//
// What the parts of a story have in common: words, notes, and matrices as tables.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/scene.h"

#include "scene/tell/story.h"
#include "scene/trace/trace_model.h"

namespace fovea::scene {

/// What stands for a masked score or weight.
inline constexpr std::string_view kMaskedMark = "·";

class StoryParts {
 public:
  explicit StoryParts(const Trace& trace);

  const TraceModel& model() const { return model_; }
  const Scene& scene() const { return model_.scene(); }
  const Step* find(const std::string& name) const { return model_.find(name); }
  /// Whether tables are cut to what matters and matrices become pictures.
  bool many() const { return many_; }

  /// A section that begins with a step's formula and how to read it.
  Section section(const std::string& title, const std::string& step) const;

  /// The author's notes on these steps.
  std::vector<Note> notes(const std::vector<std::string>& steps) const;
  /// The names of the steps that hold weights and their sums.
  std::vector<std::string> weight_steps(const std::string& prefix) const;
  /// "[sum]" for a normalization that is only shown beside the main one; else "".
  std::string suffix(reference::Normalization normalization) const;

  /// The words along an axis, made safe to show.
  std::vector<std::string> words(Axis axis, std::int64_t item) const;

  /// Adds a step's matrices, one for each head and batch item: as tables, or as pictures where
  /// there are many words. Nothing where the scene has no such step.
  void add_matrices(Section& target, const std::string& step, const std::string& caption) const;

 private:
  Table table(const StepLayout& layout, std::int64_t item, std::int64_t head) const;
  Picture picture(const StepLayout& layout, std::int64_t item, std::int64_t head) const;

  TraceModel model_;
  bool many_;
};

/// The positions shown of `count`: all of a few; otherwise the first, the last and `keep`, with -1
/// for what is left out.
std::vector<std::int64_t> shown_positions(std::int64_t count, std::int64_t few, std::int64_t keep);

/// The sections that follow one word: its scores, weights and context.
std::vector<Section> tell_word(const StoryParts& parts);

}  // namespace fovea::scene
