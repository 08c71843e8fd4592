// SPDX-License-Identifier: Apache-2.0
//
// The lessons (lessons.h).

#include "cli/learn/lessons.h"

#include <algorithm>

namespace fovea::cli {
namespace {

/// Returns "1-dot-product" for "1_dot_product".
std::string hyphenated(std::string_view stem) {
  std::string text(stem);
  std::ranges::replace(text, '_', '-');
  return text;
}

std::string first_paragraph(const scene::Notes& notes) {
  for (const auto& [step, text] : notes) {
    if (step == "scene") return text.substr(0, text.find('\n'));
  }
  return {};
}

}  // namespace

std::vector<std::string> lesson_names() {
  std::vector<std::string> names;
  for (const LessonFile& file : lesson_files()) {
    names.push_back(hyphenated(file.stem.substr(file.stem.find('_') + 1)));
  }
  return names;
}

std::vector<Lesson> load_lessons() {
  std::vector<Lesson> lessons;
  const std::vector<std::string> names = lesson_names();
  for (const LessonFile& file : lesson_files()) {
    scene::Scene scene = scene::parse_scene(file.json);
    std::string summary = first_paragraph(scene.notes);
    lessons.push_back({names[lessons.size()], hyphenated(file.stem) + ".html", std::move(summary),
                       std::move(scene)});
  }
  return lessons;
}

}  // namespace fovea::cli
