// SPDX-License-Identifier: Apache-2.0
//
// The story of one word on the page: its scores as written-out products, its weights as bars, and
// its context as a weighted sum. The page's script rebuilds the story for other words.

#pragma once

#include <string>
#include <vector>

#include "scene/texts/texts.h"
#include "scene/trace/trace_model.h"

namespace fovea::scene::html {

/// A numbered section of the page.
struct PageSection {
  std::string id;
  std::vector<std::string> steps;  ///< names of the displayed steps
  std::string title;               ///< HTML
  std::vector<std::string> formulas;
  std::string reading;
  std::string body;    ///< HTML
  std::string origin;  ///< HTML: where drawn numbers come from, or empty
};

/// Maximum number of terms in a written-out sum.
inline constexpr std::int64_t kMaxTerms = 6;
/// Maximum number of values in a displayed row.
inline constexpr std::int64_t kMaxShownNumbers = 12;

/// Returns the sections about the focus in order, or none if the scene has no focus.
std::vector<PageSection> story_sections(const TraceModel& model, const Texts& texts);

}  // namespace fovea::scene::html
