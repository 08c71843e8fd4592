// SPDX-License-Identifier: Apache-2.0
//
// The LaTeX document of a trace: escaping, numbers, formulas, tables, and, where pdfLaTeX is
// installed, that it compiles.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/scene.h"

#include "scene/tell/formula.h"
#include "scene/tell/latex.h"

namespace fovea::scene {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string latex_of(const std::string& scene) { return to_latex(trace_scene(parse_scene(scene))); }

std::string latex_example(const std::string& name) {
  return to_latex(trace_scene(load_scene(FOVEA_SCENES "/" + name + ".json")));
}

/// A scene of three words, the second of which is in focus.
std::string small_scene(const std::string& words, const std::string& more) {
  return R"({"title": "t", "tokens": )" + words +
         R"(, "embeddings": [[1, 0], [0.5, -2], [0, 1]], "focus": 1)" + more + "}";
}

int occurrences(std::string_view text, std::string_view part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

TEST(Latex, EscapesEverySpecialCharacter) {
  EXPECT_EQ(latex::escape(R"(# $ % & _ { } ~ ^ \)"),
            R"(\# \$ \% \& \_ \{ \} \textasciitilde{} \textasciicircum{} \textbackslash{})");
  EXPECT_EQ(latex::escape(R"(< > | " `)"),
            R"(\textless{} \textgreater{} \textbar{} \textquotedbl{} \textasciigrave{})");
  // After a line break, a bracket begins its optional argument and a star belongs to it.
  EXPECT_EQ(latex::escape("[1] *"), "{[}1{]} {*}");
  // Only doubled characters are ligatures.
  EXPECT_EQ(latex::escape("a-b, don't"), "a-b, don't");
  EXPECT_EQ(latex::escape("--x"), "-\\kern0pt -x");
  EXPECT_EQ(latex::escape("''"), "'\\kern0pt '");
  EXPECT_EQ(latex::escape("猫 é"), "猫 é");
}

TEST(Latex, WritesNumbers) {
  EXPECT_EQ(latex::number("-0.25"), "-0.25");
  EXPECT_EQ(latex::number("<0.0001"), "{<}0.0001");
  EXPECT_EQ(latex::number(">-0.0001"), "{>}-0.0001");
  EXPECT_EQ(latex::number("1.5e-05"), "1.5 \\cdot 10^{-5}");
  EXPECT_EQ(latex::number("2e+10"), "2 \\cdot 10^{10}");
  EXPECT_EQ(latex::number("inf"), "\\infty");
  EXPECT_EQ(latex::number("-inf"), "-\\infty");
  EXPECT_EQ(latex::number("nan"), "\\mathrm{nan}");
  EXPECT_EQ(latex::number("×"), "\\times");
  EXPECT_EQ(latex::number("…"), "\\dots");
  for (const char* other : {"", "1 2", "word", "0x1p3 ", "-", "3rd"}) {
    EXPECT_EQ(latex::number(other), "") << other;
  }
}

TEST(Latex, WritesFormulasOfEveryKind) {
  const auto formula = [](const std::string& more, const char* step) {
    return latex::math(step_formula(step, parse_scene(small_scene(R"(["a", "b", "c"])", more))));
  };
  EXPECT_EQ(formula("", "scores"), "S=QK^{\\top }");
  EXPECT_EQ(formula("", "embeddings"), "X\\in \\mathbb{R}^{3\\times 2}");
  EXPECT_EQ(formula("", "focus.weights"),
            "a_{j}=\\frac{e^{s_{j}-m}}{\\sum \\limits_{k}e^{s_{k}-m}},\\; m=\\max\\limits_{k}\\, "
            "s_{k}");
  EXPECT_EQ(formula(R"~(, "score": {"scale": "1/sqrt(head_dim)"})~", "scaled_scores"),
            "s_{ij}^{\\prime }=\\frac{s_{ij}}{\\sqrt{d_{k}}}");
  EXPECT_EQ(formula(R"(, "mask": "causal")", "focus.masked_scores"),
            "s_{j}^{\\prime }=\\begin{cases} s_{j} & \\text{where visible} \\\\ -\\infty  & "
            "\\text{elsewhere} \\end{cases}");
}

TEST(Latex, WritesAttentionInOneFormula) {
  const auto attention = [](const std::string& more) {
    const auto formula = attention_formula(parse_scene(small_scene(R"(["a", "b", "c"])", more)));
    return formula ? latex::math(*formula) : "none";
  };
  EXPECT_EQ(attention(R"(, "score": {"scale": 1})"),
            "C=\\operatorname{softmax}\\left(XX^{\\top }\\right)X");
  EXPECT_EQ(attention(R"~(, "projections": {"query": [[1, 0], [0, 1]], "key": [[1, 0], [0, 1]],
      "value": [[1, 0], [0, 1]]}, "score": {"scale": "1/sqrt(head_dim)"})~"),
            "C=\\operatorname{softmax}\\left(\\frac{QK^{\\top }}{\\sqrt{d_{k}}}\\right)V");
  EXPECT_EQ(attention(R"(, "heads": 2, "score": {"scale": 1, "softcap": 5})"),
            "C^{\\left(h\\right)}=\\operatorname{softmax}\\left(5\\cdot "
            "\\tanh\\left(\\frac{X^{\\left(h\\right)}X^{\\left(h\\right)\\top "
            "}}{5}\\right)\\right)X^{\\left(h\\right)}");
  EXPECT_THAT(attention(R"(, "mask": "causal")"), HasSubstr("+M\\right)X,\\; \\, \\, M_{ij}="));
  EXPECT_EQ(attention(R"(, "normalizations": ["sum"])"), "none");
}

TEST(Latex, TellsWhatMarkdownTells) {
  const std::string text = latex_example("001_your_journey");
  EXPECT_TRUE(text.starts_with("\\documentclass"));
  EXPECT_TRUE(text.ends_with("\\end{document}\n"));
  EXPECT_THAT(text, HasSubstr("\\title{Your journey starts with one step}"));
  EXPECT_EQ(occurrences(text, "\\section{"), 5);
  EXPECT_EQ(occurrences(text, "\\toprule"), occurrences(text, "\\bottomrule"));
  // Sums are aligned at their signs, and the word in focus is bold.
  EXPECT_THAT(text, HasSubstr("\\textbf{journey} & $0.55$ & $\\cdot$ & $0.55$ & $+$ & $0.87$"));
  EXPECT_THAT(text, HasSubstr("\\heat{100}\\color{white}$0.2379$"));
  EXPECT_THAT(text, HasSubstr("sum & $6.5617$ & $1.0000$ & $18.7453$ & $1.0000$ &  & $4.2036$"));
  EXPECT_THAT(text, HasSubstr("\\emph{Note:} "));
}

TEST(Latex, NegativeFactorsAreInParentheses) {
  EXPECT_THAT(latex_of(small_scene(R"(["a", "b", "c"])", "")),
              HasSubstr("$0.5$ & $\\cdot$ & $0.5$ & $+$ & $(-2.0)$ & $\\cdot$ & $(-2.0)$ & $=$"));
}

TEST(Latex, WordsAndNotesAreEscaped) {
  const std::string text = latex_of(small_scene(R"(["\\end{document}", "a&b", "50%"])",
                                                R"(, "notes": {"scores": "x_1\n\n[y]\n*z"})"));
  EXPECT_EQ(occurrences(text, "\\end{document}"), 1);
  EXPECT_THAT(text, HasSubstr("\\textbackslash{}end\\{document\\} & "));
  EXPECT_THAT(text, HasSubstr("\\textbf{a\\&b} & "));
  EXPECT_THAT(text, HasSubstr("50\\% & "));
  EXPECT_THAT(text, HasSubstr("\\emph{Note:} x\\_1\n\n{[}y{]}\\newline\n{*}z\n"));
}

TEST(Latex, ShowsMasksOverflowAndEmptyRows) {
  EXPECT_THAT(latex_example("causal_mask"), HasSubstr("$\\times$"));
  const std::string overflow = latex_example("overflow");
  EXPECT_THAT(overflow, HasSubstr("$\\infty$"));
  EXPECT_THAT(overflow, HasSubstr("$\\mathrm{nan}$"));
  // The first word may see nothing.
  const std::string blind =
      latex_of(small_scene(R"(["a", "b", "c"])", R"(, "mask": {"prefix": 0})"));
  EXPECT_THAT(blind, HasSubstr("may see nothing"));
}

TEST(Latex, HeadsAndSentencesHaveCaptions) {
  EXPECT_THAT(latex_example("two_heads"), HasSubstr("\\begin{block}{query, head 1}"));
  EXPECT_THAT(latex_example("two_heads"), HasSubstr("\\begin{block}{$W_Q$}"));
  EXPECT_THAT(latex_example("padded_batch"), HasSubstr("\\begin{block}{Weights, Sentence 1 of 2}"));
}

TEST(Latex, ManyWordsBecomeAPicture) {
  std::string words;
  for (int i = 0; i < 60; ++i) words += "w" + std::to_string(i) + ' ';
  const std::string text = to_latex(trace_scene(scene_from_sentence(words)));
  EXPECT_THAT(text, HasSubstr("Weights (60 x 60, as 48 x 48 cells"));
  EXPECT_THAT(text, HasSubstr("\\begin{picture}(48,48)"));
}

TEST(Latex, DeclaresCharactersAndFonts) {
  const std::string plain = to_latex(trace_scene(scene_from_sentence("a b")));
  EXPECT_THAT(plain, Not(HasSubstr("\\tryfont")));
  const std::string other = to_latex(trace_scene(scene_from_sentence("猫 🙂")));
  EXPECT_THAT(other, HasSubstr("\\character{猫}{732B}{\\codepoint{732B}}"));
  EXPECT_THAT(other, HasSubstr("\\character{🙂}{1F642}{\\codepoint{1F642}}"));
  EXPECT_THAT(other, HasSubstr("\\tryfont{"));
  EXPECT_THAT(other, Not(HasSubstr("bidi")));
  EXPECT_THAT(to_latex(trace_scene(scene_from_sentence("שלום"))), HasSubstr("bidi=basic"));
}

TEST(Latex, Compiles) {
  if (std::system("command -v pdflatex >/dev/null && kpsewhich booktabs.sty >/dev/null") != 0) {
    GTEST_SKIP() << "no pdflatex with the packages of texlive-latex-recommended";
  }
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "fovea_latex_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "special.tex") << to_latex(trace_scene(scene_from_sentence(
      R"(a_b 50% #1 $x$ {y} ^z ~t \n & < > | " `` -- [x] *s ß 猫 🙂 שלום)",
      {.causal = true})));
  const std::string command =
      "cd '" + folder.string() +
      "' && pdflatex -interaction=nonstopmode -halt-on-error special.tex >log.txt 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace fovea::scene
