// SPDX-License-Identifier: Apache-2.0
//
// The lessons of `fovea learn`: the scenes in lessons/, embedded by the build.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fovea/scene.h"

namespace fovea::cli {

/// A file of lessons/: "1_dot_product" and its contents.
struct LessonFile {
  std::string_view stem;
  std::string_view json;
};

/// Returns the files in order. Defined in a source file that cli/CMakeLists.txt generates.
std::vector<LessonFile> lesson_files();

struct Lesson {
  std::string name;     ///< as typed: "dot-product"
  std::string page;     ///< the name of its page: "1-dot-product.html"
  std::string summary;  ///< one sentence: the first paragraph of the scene's notes
  scene::Scene scene;
};

/// Returns the names of the lessons in order.
std::vector<std::string> lesson_names();

/// Parses all lessons.
std::vector<Lesson> load_lessons();

}  // namespace fovea::cli
