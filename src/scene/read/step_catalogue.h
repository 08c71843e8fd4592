// SPDX-License-Identifier: Apache-2.0
//
// The steps of a trace: names, titles, formulas and explanations, in one table that is used by the
// text, the page, JSON and the checks.

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/reference.h"

#include "scene/texts/texts.h"

namespace fovea::scene {

struct StepInfo {
  std::string_view name;
  std::string_view formula;  ///< plain text
};

/// Returns all steps in trace order.
const std::vector<StepInfo>& step_catalogue();

/// Returns the step with this name, ignoring a "focus." prefix and a "[softmax]" suffix. Requires
/// is_step_name(name).
const StepInfo& step_info(std::string_view name);

/// The name by which readers know the unshifted softmax.
inline constexpr std::string_view kNaive = "naive";

/// Returns the name with "[naive]" replaced by "[softmax_unshifted]".
std::string canonical_name(std::string_view name);

/// Returns the name without its "focus." prefix and "[...]" suffix.
std::string_view base_name(std::string_view name);

/// Returns whether a step is an intermediate result of softmax. Such steps are shown as columns of
/// the softmax table, not as matrices.
bool is_softmax_part(std::string_view name);

/// Returns the title of a step, which may have a prefix or suffix.
std::string step_title(std::string_view name, const Texts& texts = english());
/// Returns one sentence on how to read the numbers of a step of a scene with or without sinks.
std::string step_reading(std::string_view name, bool sinks, const Texts& texts = english());

/// Returns whether a trace can contain a step of this name.
bool is_step_name(std::string_view name);

/// Returns every name that is_step_name() accepts.
std::vector<std::string> all_step_names();

/// Returns "softmax", "softmax_unshifted" or "sum".
std::string_view normalization_name(reference::Normalization normalization);
/// Returns the display name: "softmax", "naive softmax" or "divided by sum".
std::string normalization_label(reference::Normalization normalization,
                                const Texts& texts = english());
/// Returns the formula in plain text.
std::string_view normalization_formula(reference::Normalization normalization);
/// Returns the formula of the exponential of a normalization that has one, in plain text.
std::string_view exponential_formula(reference::Normalization normalization);
/// Returns the normalization of a step: the one in its suffix, such as "[sum]", or the last one.
reference::Normalization normalization_of(std::string_view step,
                                          std::span<const reference::Normalization> normalizations);
/// Returns all normalization names in the order of the enumeration.
const std::vector<std::string>& normalization_names();

}  // namespace fovea::scene
