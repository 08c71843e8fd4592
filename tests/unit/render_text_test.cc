// SPDX-License-Identifier: Apache-2.0
//
// The story as text and Markdown: right numbers, aligned columns, nothing wider than asked for, and
// nothing in it that a terminal or a Markdown reader would obey.

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/scene.h"

#include "scene/number_text.h"
#include "scene/pooled.h"
#include "scene/story.h"
#include "scene/text_width.h"

namespace fovea::scene {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> example_scenes() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(FOVEA_SCENES)) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string sentence(int words, int dim = 4) {
  std::string text;
  for (int i = 0; i < words; ++i) text += "word" + std::to_string(i) + ' ';
  return to_text(trace_scene(scene_from_sentence(text, {.dim = dim})));
}

TEST(RenderText, TellsTheStoryOfTheJourney) {
  const std::string text = to_text(trace_scene(load_scene(FOVEA_SCENES "/001_your_journey.json")));
  for (const char* part : {
           "6 words, 3 numbers each; dot-product scores, not scaled, no trained weights",
           " > journey  0.55  0.87  0.66      the query\n",
           "   Your     0.55*0.43 + 0.87*0.15 + 0.66*0.89 =  0.9544  #############\n",
           "            divided by sum  exp, no shift  softmax\n",
           " > journey          0.2278         0.2379   0.2379  ####################\n",
           "   sum              1.0000         1.0000   1.0000\n",
           "   step     + 0.1581 * [0.05 0.80 0.55]\n            = [0.4419 0.6515 0.5683]\n",
           "   Your     0.2098   0.2006  0.1981  0.1242  0.1220  0.1452   |",
           "Strongest link: \"journey\" looks at itself (0.2379).",
       }) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(RenderText, NoLineIsWiderThanAskedFor) {
  for (const std::string& path : example_scenes()) {
    const Trace trace = trace_scene(load_scene(path));
    for (const int width : {60, 80, 100, 160}) {
      for (const std::string& line : lines_of(to_text(trace, {.width = width}))) {
        EXPECT_LE(display_width(line), width) << path << ": " << line;
      }
    }
  }
}

TEST(RenderText, ColourOnlyWhenAskedFor) {
  const Trace trace = trace_scene(load_scene(FOVEA_SCENES "/001_your_journey.json"));
  EXPECT_THAT(to_text(trace), Not(HasSubstr("\x1b")));
  EXPECT_THAT(to_text(trace, {.color = Color::k256}), HasSubstr("\x1b[48;5;"));
  EXPECT_THAT(to_text(trace, {.color = Color::kTrueColor}), HasSubstr("\x1b[48;2;"));
}

TEST(RenderText, MaskedCellsAreDots) {
  const std::string text = to_text(trace_scene(
      parse_scene(R"({"tokens": ["a", "b"], "embeddings": [[1], [1]], "mask": "causal"})")));
  EXPECT_THAT(text, HasSubstr(" > a        1.0    ·   |██··|\n   b        0.5  0.5   |▒▒▒▒|\n"));
  EXPECT_THAT(text, HasSubstr("\"a\" looks only at itself."));
}

TEST(RenderText, WideCharactersAlign) {
  const std::string text = to_text(trace_scene(parse_scene(
      R"({"tokens": ["猫", "👩‍👩‍👧", "cat"], "embeddings": [[1.5, 2], [3, 4], [5, 6]],
          "focus": null})")));
  EXPECT_THAT(
      text,
      HasSubstr("          0    1\n   猫   1.5  2.0\n   👩‍👩‍👧   3.0  4.0\n   cat "
                " 5.0  6.0\n"));
}

TEST(RenderText, ManyWordsStayReadable) {
  const std::string text = sentence(300);
  EXPECT_LT(lines_of(text).size(), 220U);
  EXPECT_THAT(text, HasSubstr("300 x 300: a cell is the mean of about"));
  EXPECT_THAT(text, HasSubstr("Shown: the 10 words with the largest weights."));
  for (const std::string& line : lines_of(text)) EXPECT_LE(display_width(line), 100) << line;
}

TEST(RenderText, BarsGoBeforeProductsWhereRoomIsShort) {
  const Trace trace = trace_scene(scene_from_sentence("one two three", {.dim = 3, .causal = true}));
  EXPECT_THAT(to_text(trace, {.width = 120}), HasSubstr(" =  1.5800  0.9122  0.9122  ####"));
  EXPECT_THAT(to_text(trace, {.width = 90}), HasSubstr(" =  1.5800  0.9122  0.9122\n"));
  EXPECT_THAT(to_text(trace, {.width = 60}), HasSubstr(" > one    1.5800  0.9122  0.9122  ####"));
}

TEST(RenderText, ManyColumnsAreCut) {
  for (const std::string& line : lines_of(sentence(3, 200))) {
    EXPECT_LE(display_width(line), 100) << line;
  }
}

const std::string kHostile =
    R"*({"title": "\u001b[2J<script>alert(1)</script> | **bold** [x](http://y)",)*"
    R"*("tokens": ["\u001b]0;owned\u0007", "<img src=x onerror=alert(1)>", "a|b`c`",)*"
    R"*("\u202eabc"], "embeddings": [[1, 2], [3, 4], [5, 6], [7, 8]],)*"
    R"*("notes": {"scores": "<script>alert(2)</script>\u001b[31m", "scene": "# heading"}})*";

TEST(RenderText, HostileTextIsShownNotObeyed) {
  const std::string text = to_text(trace_scene(parse_scene(kHostile)));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("\x07")));
  EXPECT_THAT(text, Not(HasSubstr("\u202e")));
  EXPECT_THAT(text, HasSubstr("\\x1b[2J<script>"));
}

TEST(RenderMarkdown, HostileTextIsShownNotObeyed) {
  const std::string markdown = to_markdown(trace_scene(parse_scene(kHostile)));
  EXPECT_THAT(markdown, Not(HasSubstr("<script")));
  EXPECT_THAT(markdown, Not(HasSubstr("<img")));
  EXPECT_THAT(markdown, Not(HasSubstr("\x1b")));
  EXPECT_THAT(markdown, HasSubstr("\\*\\*bold\\*\\* \\[x\\]"));
  EXPECT_THAT(markdown, HasSubstr("a\\|b\\`c\\`"));
  EXPECT_THAT(markdown, HasSubstr("\\# heading"));
}

TEST(RenderMarkdown, TablesAreWellFormed) {
  for (const std::string& path : example_scenes()) {
    const std::string markdown = to_markdown(trace_scene(load_scene(path)));
    std::size_t columns = 0;
    for (const std::string& line : lines_of(markdown)) {
      if (!line.starts_with("|")) {
        columns = 0;
        continue;
      }
      std::size_t bars = 0;
      for (std::size_t i = 0; i < line.size(); ++i) {
        if (line[i] == '|' && (i == 0 || line[i - 1] != '\\')) ++bars;
      }
      if (columns == 0) columns = bars;
      EXPECT_EQ(bars, columns) << path << ": " << line;
    }
  }
}

TEST(NumberText, WholeNumbersDecimalsAndScientific) {
  const auto show = [](std::initializer_list<double> values, int precision) {
    const Tensor row = Tensor::matrix({values});
    const NumberText text(row, precision);
    std::vector<std::string> shown;
    for (const double value : values) shown.push_back(text.padded(value));
    return shown;
  };
  EXPECT_THAT(show({8, 2, 10}, 4), ElementsAre(" 8", " 2", "10"));
  EXPECT_THAT(show({0.43, 0.9, -1}, 4), ElementsAre(" 0.43", " 0.90", "-1.00"));
  EXPECT_THAT(show({1.0 / 3, 2}, 4), ElementsAre("0.3333", "2.0000"));
  EXPECT_THAT(show({1.0 / 3, 2}, 0), ElementsAre("0", "2"));
  // One small number among many does not turn the column scientific; half of them does.
  EXPECT_THAT(show({0.5, 0.25, 1e-9}, 4), ElementsAre("0.50", "0.25", "0.00"));
  EXPECT_THAT(show({0.5, 1e-9}, 2), ElementsAre("5e-01", "1e-09"));
  EXPECT_THAT(show({0.5, HUGE_VAL, -HUGE_VAL}, 4), ElementsAre(" 0.5", " inf", "-inf"));
  EXPECT_THAT(show({-0.0, 1}, 4), ElementsAre("0", "1"));
}

TEST(Pooled, CellsAreMeansOfTheirPart) {
  const Tensor matrix = Tensor::matrix({{1, 3, 5}, {5, 7, -HUGE_VAL}, {0, 0, -HUGE_VAL}});
  const Tensor pooled = pooled_mean(matrix, 2, 2);  // rows 0 | 1 2, columns 0 | 1 2
  EXPECT_EQ(pooled.value({0, 0}), 1.0);
  EXPECT_EQ(pooled.value({0, 1}), 4.0);
  EXPECT_EQ(pooled.value({1, 0}), 2.5);
  EXPECT_EQ(pooled.value({1, 1}), 3.5);  // what is masked does not count
  EXPECT_EQ(pooled_mean(matrix, 3, 3).value({2, 2}), -HUGE_VAL);
  EXPECT_EQ(pooled_mean(matrix, 100, 100).shape(), (Shape{3, 3}));
}

}  // namespace
}  // namespace fovea::scene
