// SPDX-License-Identifier: Apache-2.0
//
// Text, numbers and formulas in LaTeX (latex.h).

#include "scene/tell/latex.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "scene/trace/trace_model.h"

namespace fovea::scene::latex {
namespace {

using Names = std::pair<std::string_view, std::string_view>;

/// Returns the second of the pair whose first is `name`, or nullptr.
template <std::size_t N>
const std::string_view* find_name(const Names (&names)[N], std::string_view name) {
  const auto* const found = std::find_if(std::begin(names), std::end(names),
                                         [&](const Names& entry) { return entry.first == name; });
  return found == std::end(names) ? nullptr : &found->second;
}

std::string sign(std::string_view text) {
  static constexpr Names kSigns[] = {
      {"\u2212", "-"},        {"\u00B7", "\\cdot "}, {"\u22A4", "\\top "},  {"\u2032", "\\prime "},
      {"\u00D7", "\\times "}, {"\u2208", "\\in "},   {"\u2026", "\\dots "}, {"\u22EF", "\\cdots "},
      {"\u2211", "\\sum "},   {"\u2061", ""},        {",", ",\\; "},
  };
  const std::string_view* const known = find_name(kSigns, text);
  return std::string(known != nullptr ? *known : text);
}

std::string identifier(std::string_view text) {
  static constexpr Names kLetters[] = {{"\u211D", "\\mathbb{R}"}, {"\u221E", "\\infty "}};
  static constexpr Names kFunctions[] = {{"max", "\\max"}, {"tanh", "\\tanh"}};
  if (const auto* const letter = find_name(kLetters, text)) return std::string(*letter);
  if (const auto* const function = find_name(kFunctions, text)) return std::string(*function);
  return text.size() == 1 ? std::string(text) : fmt::format("\\operatorname{{{}}}", text);
}

std::string parts_of(const Formula& formula) {
  std::string out;
  for (const Formula& part : formula.parts) out += math(part);
  return out;
}

std::string scripts(const Formula& formula, std::string_view marks) {
  std::string out = math(formula.parts[0]);
  for (std::size_t i = 0; i < marks.size(); ++i) {
    out += fmt::format("{}{{{}}}", marks[i], math(formula.parts[i + 1]));
  }
  return out;
}

std::string cases(const Formula& formula) {
  std::string rows;
  for (std::size_t i = 0; i + 1 < formula.parts.size(); i += 2) {
    rows += fmt::format("{}{} & {}", rows.empty() ? "" : " \\\\ ", math(formula.parts[i]),
                        math(formula.parts[i + 1]));
  }
  return fmt::format("\\begin{{cases}} {} \\end{{cases}}", rows);
}

}  // namespace

std::string escape(std::string_view text) {
  static constexpr Names kEscapes[] = {
      {"\\", "\\textbackslash{}"},
      {"~", "\\textasciitilde{}"},
      {"^", "\\textasciicircum{}"},
      {"<", "\\textless{}"},
      {">", "\\textgreater{}"},
      {"|", "\\textbar{}"},
      {"\"", "\\textquotedbl{}"},
      {"`", "\\textasciigrave{}"},
      {"{", "\\{"},
      {"}", "\\}"},
      {"$", "\\$"},
      {"&", "\\&"},
      {"#", "\\#"},
      {"%", "\\%"},
      {"_", "\\_"},
      // An optional argument, or the star of a line break.
      {"[", "{[}"},
      {"]", "{]}"},
      {"*", "{*}"},
      // Ligatures, such as a dash of two hyphens.
      {"-", "-\\kern0pt "},
      {"'", "'\\kern0pt "},
      {",", ",\\kern0pt "},
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view one = text.substr(i, 1);
    const bool ligature = one == "-" || one == "'" || one == ",";
    const bool doubled = i + 1 < text.size() && text[i + 1] == text[i];
    const std::string_view* const known = find_name(kEscapes, one);
    out += known == nullptr || (ligature && !doubled) ? one : *known;
  }
  return out;
}

std::string number(std::string_view text) {
  if (text == kMaskedMark) return "\\times";
  if (text == "\u2026") return "\\dots";
  std::string relation;
  if (text.starts_with('<') || text.starts_with('>')) {
    relation = fmt::format("{{{}}}", text[0]);
    text.remove_prefix(1);
  }
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) return "";
  if (text.ends_with("inf")) return text.starts_with('-') ? "-\\infty" : "\\infty";
  if (text.ends_with("nan")) return "\\mathrm{nan}";
  const std::size_t e = text.find('e');
  if (e == std::string_view::npos) return relation + std::string(text);
  int exponent = 0;
  const std::size_t digits = e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(text.data() + digits, text.data() + text.size(), exponent);
  return fmt::format("{}{} \\cdot 10^{{{}}}", relation, text.substr(0, e), exponent);
}

std::string math(const Formula& formula) {
  switch (formula.kind) {
    case Formula::Kind::kIdentifier:
      return identifier(formula.text);
    case Formula::Kind::kNumber: {
      const std::string known = number(formula.text);
      return known.empty() ? fmt::format("\\text{{{}}}", escape(formula.text)) : known;
    }
    case Formula::Kind::kOperator:
      return sign(formula.text);
    case Formula::Kind::kText:
      return fmt::format("\\text{{{}}}", escape(formula.text));
    case Formula::Kind::kRow:
      return parts_of(formula);
    case Formula::Kind::kParentheses:
      return fmt::format("\\left({}\\right)", parts_of(formula));
    case Formula::Kind::kSubscript:
      return scripts(formula, "_");
    case Formula::Kind::kSuperscript:
      return scripts(formula, "^");
    case Formula::Kind::kScripts:
      return scripts(formula, "_^");
    case Formula::Kind::kFraction:
      return fmt::format("\\frac{{{}}}{{{}}}", math(formula.parts[0]), math(formula.parts[1]));
    case Formula::Kind::kRoot:
      return fmt::format("\\sqrt{{{}}}", math(formula.parts[0]));
    case Formula::Kind::kUnder:
      return fmt::format("{}\\limits_{{{}}}", math(formula.parts[0]), math(formula.parts[1]));
    case Formula::Kind::kCases:
      return cases(formula);
    case Formula::Kind::kSpace:
      return "\\, ";
  }
  return {};
}

}  // namespace fovea::scene::latex
