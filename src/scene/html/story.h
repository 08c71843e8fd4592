// SPDX-License-Identifier: Apache-2.0
//
// The story of one word on the page: its scores written out product by product, its weights as
// bars, its context as a weighted sum. The page's script tells it again for another word.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "scene/trace/trace_model.h"

namespace fovea::scene::html {

/// One numbered section of the page.
struct PageSection {
  std::string id;
  std::vector<std::string> steps;  ///< the trace's steps that it shows
  std::string title;               ///< HTML
  std::vector<std::string> formulas;
  std::string reading;
  std::string body;  ///< HTML
};

/// Longer sums are not written out.
inline constexpr std::int64_t kMaxTerms = 6;
/// Longer rows are cut.
inline constexpr std::int64_t kMaxShownNumbers = 12;

/// The sections of the focus, in order; none when the scene has no focus.
std::vector<PageSection> story_sections(const TraceModel& model);

}  // namespace fovea::scene::html
