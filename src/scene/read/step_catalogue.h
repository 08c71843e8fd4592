// SPDX-License-Identifier: Apache-2.0
//
// The steps a trace can have: their names, titles, formulas and how to read them. One table for
// the text, the page, JSON and the checks.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fovea/reference.h"

namespace fovea::scene {

struct StepInfo {
  std::string_view name;
  std::string_view title;
  std::string_view formula;  ///< plain text
  std::string_view reading;  ///< one sentence on how to read the numbers
};

/// All steps, in the order of a trace.
const std::vector<StepInfo>& step_catalogue();

/// A step by its name; a "focus." prefix and a "[softmax]" suffix are ignored. The name must be one
/// that is_step_name() accepts.
const StepInfo& step_info(std::string_view name);

/// The name without its "focus." prefix and "[...]" suffix.
std::string_view base_name(std::string_view name);

/// Whether a trace of some scene can have a step of this name.
bool is_step_name(std::string_view name);

/// Every name that is_step_name() accepts.
std::vector<std::string> all_step_names();

/// "softmax", "softmax_unshifted", "sum".
std::string_view normalization_name(reference::Normalization normalization);
/// For people: "softmax", "exp, no shift", "divided by sum".
std::string_view normalization_label(reference::Normalization normalization);
/// Its formula, in plain text.
std::string_view normalization_formula(reference::Normalization normalization);
/// In the order of the enumeration.
const std::vector<std::string>& normalization_names();

}  // namespace fovea::scene
