// SPDX-License-Identifier: Apache-2.0
//
// The formula of each step in textbook notation, as a tree that is rendered as MathML
// (html/mathml.h) or LaTeX (latex.h).

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/scene.h"

#include "scene/texts/texts.h"

namespace fovea::scene {

struct Formula {
  enum class Kind : std::uint8_t {
    kIdentifier,   ///< `text`: a letter or the name of a function
    kNumber,       ///< `text`
    kOperator,     ///< `text`: a sign such as U+2212 or U+22A4
    kText,         ///< `text`: words
    kRow,          ///< all parts, side by side
    kParentheses,  ///< part 0 in parentheses
    kSubscript,    ///< part 1 below part 0
    kSuperscript,  ///< part 1 above part 0
    kScripts,      ///< part 1 below and part 2 above part 0
    kFraction,     ///< part 0 over part 1
    kRoot,         ///< the square root of part 0
    kUnder,        ///< part 1 under the large operator part 0
    kCases,        ///< a brace before rows of a value and its condition, alternating
    kSpace,        ///< a thin space
  };
  Kind kind = Kind::kRow;
  std::string text;
  std::vector<Formula> parts;
};

/// Returns the formula of the step with this name ("scores", "focus.weights[sum]"), with the score
/// kind, scale and normalisation of the scene. Formulas of focus steps are for one row; the others
/// are for the whole matrix if the step is a matrix operation.
Formula step_formula(std::string_view name, const Scene& scene, const Texts& texts = english());

/// Returns the context of all words in one formula, such as C = softmax(Q K^T / sqrt(d_k)) V.
/// Returns nothing if the weights are not made by softmax.
std::optional<Formula> attention_formula(const Scene& scene, const Texts& texts = english());

}  // namespace fovea::scene
