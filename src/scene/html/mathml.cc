// SPDX-License-Identifier: Apache-2.0
//
// Formulas in MathML (mathml.h).

#include "scene/html/mathml.h"

#include <fmt/format.h>

#include "text/html_escape.h"

namespace fovea::scene::html {
namespace {

std::string element(const Formula& formula);

std::string elements(const Formula& formula) {
  std::string out;
  for (const Formula& part : formula.parts) out += element(part);
  return out;
}

std::string cases(const Formula& formula) {
  std::string rows;
  for (std::size_t i = 0; i + 1 < formula.parts.size(); i += 2) {
    rows += fmt::format("<mtr><mtd>{}</mtd><mtd>{}</mtd></mtr>", element(formula.parts[i]),
                        element(formula.parts[i + 1]));
  }
  // A separate row, so that the brace stretches to the height of the cases.
  return fmt::format("<mrow><mo>{{</mo><mtable>{}</mtable></mrow>", rows);
}

std::string element(const Formula& formula) {
  const auto words = [&](std::string_view tag) {
    return fmt::format("<{0}>{1}</{0}>", tag, escape(formula.text, Lines::kKeep));
  };
  const auto around = [&](std::string_view tag) {
    return fmt::format("<{0}>{1}</{0}>", tag, elements(formula));
  };
  switch (formula.kind) {
    case Formula::Kind::kIdentifier:
      return words("mi");
    case Formula::Kind::kNumber:
      return words("mn");
    case Formula::Kind::kOperator:
      // U+2061, the invisible sign of a function call, must not be escaped as unseen.
      return fmt::format("<mo>{}</mo>", formula.text);
    case Formula::Kind::kText:
      return words("mtext");
    case Formula::Kind::kRow:
      return around("mrow");
    case Formula::Kind::kParentheses:
      return fmt::format("<mrow><mo>(</mo>{}<mo>)</mo></mrow>", elements(formula));
    case Formula::Kind::kSubscript:
      return around("msub");
    case Formula::Kind::kSuperscript:
      return around("msup");
    case Formula::Kind::kScripts:
      return around("msubsup");
    case Formula::Kind::kFraction:
      return around("mfrac");
    case Formula::Kind::kRoot:
      return around("msqrt");
    case Formula::Kind::kUnder:
      return around("munder");
    case Formula::Kind::kCases:
      return cases(formula);
    case Formula::Kind::kSpace:
      return "<mspace width=\"0.17em\"/>";
  }
  return {};
}

}  // namespace

std::string mathml(const Formula& formula) {
  return fmt::format("<math xmlns=\"http://www.w3.org/1998/Math/MathML\">{}</math>",
                     element(formula));
}

std::string step_mathml(std::string_view name, const Scene& scene, const Texts& texts) {
  return mathml(step_formula(name, scene, texts));
}

}  // namespace fovea::scene::html
