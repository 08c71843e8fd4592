// SPDX-License-Identifier: Apache-2.0
//
// Parts of a LaTeX document: escaped text, numbers and formulas.

#pragma once

#include <string>
#include <string_view>

#include "scene/tell/formula.h"

namespace fovea::scene::latex {

/// Escapes every character and ligature that LaTeX could read as markup. Other characters than
/// ASCII stay. The text must be free of line breaks.
std::string escape(std::string_view text);

/// Returns a number of a table ("-0.25", "<0.0001", "1.5e-05", "inf"), or one of the marks "×" and
/// "…", as contents of a formula. Returns "" if the text is none of these.
std::string number(std::string_view text);

/// Returns the contents of a formula, without dollar signs.
std::string math(const Formula& formula);

}  // namespace fovea::scene::latex
