// SPDX-License-Identifier: Apache-2.0
//
// Pages of a course: lessons that link to one another, and their index.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/scene.h"

namespace fovea::scene::html {

/// A lesson in the index.
struct CourseEntry {
  std::string title;
  std::string href;     ///< the file name of its page
  std::string summary;  ///< one sentence
};

struct Course {
  std::vector<CourseEntry> lessons;
  std::string index;  ///< the file name of the index
  std::string language = "en";
};

/// Part of every page of a course, and of no other page.
inline constexpr std::string_view kCourseMark = "<nav class=\"course\"";

/// Returns the page of a lesson. Throws as to_html() does.
std::string lesson_page(const Course& course, std::size_t lesson, const Trace& trace);

/// Returns the index. Throws InvalidArgument for an unknown language.
std::string index_page(const Course& course);

}  // namespace fovea::scene::html
