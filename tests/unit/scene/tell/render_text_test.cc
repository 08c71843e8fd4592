// SPDX-License-Identifier: Apache-2.0
//
// Traces as text and Markdown: correct numbers, aligned columns, no line wider than requested, and
// no escape sequence or markup that a terminal or Markdown reader would interpret.

#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/error.h"
#include "fovea/scene.h"

#include "scene/tell/story.h"
#include "scene/trace/number_text.h"
#include "scene/trace/pooled.h"
#include "scene/trace/top_keys.h"
#include "support/files.h"
#include "text/text_width.h"

namespace fovea::scene {
namespace {

using fovea::test::example_scenes;

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string sentence(int words, int dim = 4) {
  std::string text;
  for (int i = 0; i < words; ++i) text += "word" + std::to_string(i) + ' ';
  return to_text(trace_scene(scene_from_sentence(text, {.dim = dim})));
}

TEST(RenderText, RendersTheJourneyScene) {
  const std::string text = to_text(trace_scene(load_scene(FOVEA_SCENES "/001_your_journey.json")));
  for (const char* part : {
           "6 words, 3 numbers each; dot-product scores, not scaled, no trained weights",
           " > journey  0.55  0.87  0.66      the query\n",
           "   Your     0.55*0.43 + 0.87*0.15 + 0.66*0.89 =  0.9544  #############\n",
           "   Not scaled; \"score\": {\"scale\": \"1/sqrt(head_dim)\"} multiplies the scores by "
           "1/sqrt(3) = 0.5774.\n",
           "   step     + 0.1581 * [0.05 0.80 0.55]\n            = [0.4419 0.6515 0.5683]\n",
           "   Your     0.2098   0.2006  0.1981  0.1242  0.1220  0.1452   |",
           "Strongest link: \"journey\" looks at itself (0.2379).",
       }) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(RenderText, NoLineExceedsTheWidth) {
  for (const auto& path : example_scenes()) {
    const Trace trace = trace_scene(load_scene(path.string()));
    for (const int width : {40, 60, 80, 100, 160}) {
      for (const std::string& line : lines_of(to_text(trace, {.width = width}))) {
        EXPECT_LE(display_width(line), width) << path << ": " << line;
      }
    }
  }
}

TEST(RenderText, LongWordsAreTruncatedToTheWidth) {
  const std::string word(300, 'w');
  const std::string wide = [] {
    std::string text;
    for (int i = 0; i < 150; ++i) text += "猫";
    return text;
  }();
  for (const std::string& long_one : {word, wide}) {
    const Trace trace =
        trace_scene(parse_scene(R"({"title": ")" + long_one + R"(", "tokens": [")" + long_one +
                                R"(", "b"], "embeddings": [[1], [2]], "mask": "causal",
            "notes": {"scene": ")" +
                                long_one + R"(", "scores": "see )" + long_one + R"("}})"));
    for (const int width : {40, 75, 240}) {
      const std::string text = to_text(trace, {.width = width});
      for (const std::string& line : lines_of(text)) {
        EXPECT_LE(display_width(line), width) << line;
      }
    }
  }
  std::string joined;
  for (const std::string& line : wrap(word, 80)) joined += line;
  EXPECT_EQ(joined, word);  // nothing is lost
}

TEST(RenderText, WidthsOutsideTheLimitsAreClamped) {
  const Trace trace = trace_scene(load_scene(FOVEA_SCENES "/001_your_journey.json"));
  EXPECT_EQ(to_text(trace, {.width = 1}), to_text(trace, {.width = kMinWidth}));
  EXPECT_EQ(to_text(trace, {.width = 100'000}), to_text(trace, {.width = kMaxWidth}));
}

const std::string kNoteOfLines =
    R"({"tokens": ["a"], "embeddings": [[1]], "notes": {"scene": "\nfirst\r\n\n  second\n",
        "scores": "one\ttab\ntwo\u001b"}})";

TEST(RenderText, NotesKeepLineBreaks) {
  const std::string text = to_text(trace_scene(parse_scene(kNoteOfLines)));
  EXPECT_THAT(text, HasSubstr("\nfirst\n\nsecond\n"));
  EXPECT_THAT(text, HasSubstr("   Note: one tab\n   two\\x1b\n"));
}

TEST(RenderMarkdown, NotesKeepLineBreaks) {
  const std::string markdown = to_markdown(trace_scene(parse_scene(kNoteOfLines)));
  EXPECT_THAT(markdown, HasSubstr("\nfirst\n\nsecond\n\n"));
  EXPECT_THAT(markdown, HasSubstr("> Note: one tab\\\n> two\\\\x1b\n\n"));
}

TEST(RenderText, RandomWeightsAreLabelled) {
  const auto text = [](const std::string& projections) {
    return to_text(trace_scene(
        parse_scene(R"({"tokens": ["a"], "seed": 1, "embeddings": [[1]], "projections": )" +
                    projections + "}")));
  };
  const std::string one = text(R"({"query": [[1]], "key": [[2]], "value": {"draw": "rand"}})");
  EXPECT_THAT(one, HasSubstr("Drawn at random: W_V: rand, seed 1.\n"));
  EXPECT_THAT(one, HasSubstr(", random weights"));
  const std::string two =
      text(R"({"query": {"draw": "rand"}, "key": [[2]], "value": {"draw": "randn"}})");
  EXPECT_THAT(two, HasSubstr("Drawn at random: W_Q: rand, seed 1; W_V: randn, seed 1.\n"));
  const std::string all = text(R"({"draw": "rand"})");
  EXPECT_THAT(all, HasSubstr("Drawn at random: rand, seed 1.\n"));
  const std::string none = text(R"({"query": [[1]], "key": [[2]], "value": [[3]]})");
  EXPECT_THAT(none, Not(HasSubstr("Drawn at random")));
  EXPECT_THAT(none, HasSubstr(", given weights"));
}

TEST(RenderText, SinkThatTakesAllWeightIsNotAMask) {
  const std::string sink = to_text(
      trace_scene(parse_scene(R"({"tokens": ["a", "b"], "embeddings": [[1], [2]], "mask": "causal",
                      "alignment": -1, "score": {"sinks": [5000]}})")));
  EXPECT_THAT(sink, HasSubstr("\"a\" may see nothing: weights and context are 0."));
  EXPECT_THAT(sink, HasSubstr("The weights of \"b\" are all 0: the sink takes it all."));
  const std::string page = to_html(trace_scene(
      parse_scene(R"({"tokens": ["a"], "embeddings": [[1]], "score": {"sinks": [5000]}})")));
  EXPECT_THAT(page, HasSubstr("The weights of &quot;a&quot; are all 0: the sink takes it all"));
  EXPECT_THAT(page, Not(HasSubstr("&quot;a&quot; may see nothing")));
}

TEST(RenderText, WeightsDividedByZeroAreInfinite) {
  const std::string text = to_text(trace_scene(parse_scene(
      R"({"tokens": ["a", "b"], "embeddings": [[1], [-1]], "normalizations": ["sum"]})")));
  EXPECT_THAT(text, HasSubstr("Infinite: the weights of \"a\" and \"b\"; they are divided by 0"));
  EXPECT_THAT(text, Not(HasSubstr("Strongest link")));
  EXPECT_THAT(text, Not(HasSubstr("×")));  // the sign for masked
}

TEST(RenderText, RemarksNameAllEqualLinksAndRows) {
  const auto text = [](const std::string& parts) {
    return to_text(trace_scene(parse_scene(R"({"tokens": ["a", "b", "c", "d"], )" + parts + "}")));
  };
  // The first two words and the last two have the same weights with their words exchanged.
  const std::string pairs = text(
      R"("embeddings": [[1, 0], [-1, 0], [0, 1], [0, -1]], "score": {"scale": 0.6931471805599453})");
  EXPECT_THAT(pairs, HasSubstr("Strongest links, 0.4444 each: \"a\" looks at itself, \"b\" looks "
                               "at itself, \"c\" looks at itself and 1\n   more."));
  EXPECT_THAT(pairs, HasSubstr("Most even: \"a\", \"b\", \"c\" and 1 more, each spread as if"));
  const std::string two = text(R"("embeddings": [[2], [2], [0], [0]])");
  EXPECT_THAT(two, HasSubstr("looks at \"b\", \"b\" looks at \"a\""));
  EXPECT_THAT(two, HasSubstr("Most even: \"c\" and \"d\", each spread as if over 4.0 words."));
  // A tie within a row, and one row that is the most even.
  const std::string tie = text(
      R"("query": [[1], [0.5], [0.25], [0]], "key": [[3], [3], [0], [0]], "value": [[1], [2], [3], [4]])");
  EXPECT_THAT(tie, HasSubstr("Strongest links, 0.4763 each: \"a\" looks at itself and \"a\" looks "
                             "at \"b\"."));
  EXPECT_THAT(tie, HasSubstr("Most even: \"d\", spread as if over 4.0 words."));
}

TEST(RenderText, TracesWithoutStepsAreRefused) {
  const auto refused = [](const auto& render, const Trace& trace) {
    try {
      render(trace);
    } catch (const InvalidArgument& error) {
      return error.argument() == "trace";
    }
    return false;
  };
  Trace unfinished;
  unfinished.scene = parse_scene(R"({"tokens": ["a"], "embeddings": [[1]]})");
  for (const Trace& trace : {Trace{}, unfinished}) {
    EXPECT_TRUE(refused([](const Trace& t) { to_text(t); }, trace));
    EXPECT_TRUE(refused([](const Trace& t) { weights_to_text(t); }, trace));
    EXPECT_TRUE(refused([](const Trace& t) { to_markdown(t); }, trace));
    EXPECT_TRUE(refused([](const Trace& t) { to_latex(t); }, trace));
    EXPECT_TRUE(refused([](const Trace& t) { to_json(t); }, trace));
    EXPECT_TRUE(refused([](const Trace& t) { to_html(t); }, trace));
    EXPECT_TRUE(refused([](const Trace& t) { to_html(t, t); }, trace));
    EXPECT_TRUE(refused([](const Trace& t) { to_slides(t); }, trace));
  }
}

TEST(RenderText, RemarksKnowWhatTheSinkTakes) {
  const auto text = [](const std::string& inputs, const std::string& score) {
    return to_text(trace_scene(parse_scene(R"({"tokens": ["x", "y", "z"], )" + inputs +
                                           R"(, "score": {"scale": 1, )" + score + "}}")));
  };
  // The row of x is exactly even, although its weights are smaller than those of y.
  const std::string even =
      text(R"("query": [[0], [1], [0.2]], "key": [[0], [2.2], [0]], "value": [[1], [2], [3]])",
           R"("sinks": [4])");
  EXPECT_THAT(even, HasSubstr("Most even: \"x\", spread as if over 3.0 words."));
  // If the sum of a naive softmax overflows, the weights of the words and of the sink are not
  // positive, so the sink takes nothing.
  const std::string overflow =
      text(R"("embeddings": [[26.64], [26.64], [26.64]], "normalizations": ["naive"])",
           R"("sinks": [-2])");
  EXPECT_THAT(overflow, Not(HasSubstr("the sink takes it all")));
  EXPECT_THAT(overflow, HasSubstr("are all 0"));
  EXPECT_THAT(text(R"("embeddings": [[0], [0], [0]])", R"("sinks": [12])"),
              HasSubstr("Strongest links, <0.0001 each: \"x\" looks at itself,"));
}

TEST(RenderText, LongCaptionsAreWrapped) {
  std::istringstream lines(
      to_text(trace_scene(parse_scene(R"({"tokens": [["a", "b"], ["c", "d"]], "heads": 2,
        "embeddings": [[[1, 1], [2, 1]], [[3, 1], [4, 1]]], "score": {"softcap": 5}})")),
              {.width = 40}));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), 40) << line;
}

TEST(TopKeys, NanRanksLast) {
  std::string tokens, rows;
  for (int i = 0; i < 60; ++i) {
    const std::string comma = i == 0 ? "" : ", ";
    tokens += comma + "\"w" + std::to_string(i) + '"';
    rows += comma + (i % 2 == 0 ? "[1e200]" : "[" + std::to_string(i) + "]");
  }
  Trace trace = trace_scene(parse_scene(R"({"tokens": [)" + tokens + R"(], "embeddings": [)" +
                                        rows + R"(], "focus": 1})"));
  for (Step& step : trace.steps) {
    if (step.name != "weights") continue;
    for (std::int64_t j = 0; j < 60; ++j) {
      step.values.at<double>({1, j}) = j % 2 == 0 ? std::nan("") : static_cast<double>(j % 7);
    }
  }
  EXPECT_THAT(top_keys(TraceModel(trace), 0),
              ElementsAre(13, 27, 41, 55, 5, 19, 33, 47, 11, 25, 39, 53));
  for (Step& step : trace.steps) {
    if (step.name != "weights") continue;
    for (std::int64_t j = 0; j < 60; ++j) step.values.at<double>({1, j}) = std::nan("");
  }
  EXPECT_THAT(top_keys(TraceModel(trace), 0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
}

TEST(Focus, AmbiguousWordErrorListsAFewIndices) {
  std::string words;
  for (int i = 0; i < 100; ++i) words += "the ";
  Scene scene = scene_from_sentence(words);
  try {
    set_focus(scene, "the");
    FAIL() << "one of a hundred was chosen";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("occurs 100 times"));
    EXPECT_THAT(error.what(), HasSubstr("@22, @23, and 76 more"));
  }
}

TEST(RenderText, ColourOnlyOnRequest) {
  const Trace trace = trace_scene(load_scene(FOVEA_SCENES "/001_your_journey.json"));
  EXPECT_THAT(to_text(trace), Not(HasSubstr("\x1b")));
  EXPECT_THAT(to_text(trace, {.color = Color::k256}), HasSubstr("\x1b[48;5;"));
  EXPECT_THAT(to_text(trace, {.color = Color::kTrueColor}), HasSubstr("\x1b[48;2;"));
}

TEST(RenderText, MaskedCellsAreCrosses) {
  const std::string text = to_text(trace_scene(
      parse_scene(R"({"tokens": ["a", "b"], "embeddings": [[1], [1]], "mask": "causal"})")));
  EXPECT_THAT(text, HasSubstr(" > a        1.0    ×   |██× |\n   b        0.5  0.5   |▒▒▒▒|\n"));
  EXPECT_THAT(text, HasSubstr("\"a\" looks only at itself."));
  EXPECT_THAT(text, Not(HasSubstr("·")));
}

TEST(RenderText, OneLegendOfTheMaskWhereItOccursFirst) {
  const std::string legend = "× masked: the word may not be seen, and its weight is 0.\n";
  const auto place = [&](const std::string& text) {
    const std::size_t at = text.find(legend);
    EXPECT_EQ(text.find(legend, at + 1), std::string::npos);
    return at;
  };
  const std::string scene = R"({"tokens": ["a", "b"], "embeddings": [[1], [1]], )";
  // The query "b" sees both words, so that only the matrices show the mask.
  const std::string first = to_text(trace_scene(parse_scene(scene + R"("mask": "causal"})")));
  EXPECT_LT(place(first), first.find("Weights of"));
  const std::string last =
      to_text(trace_scene(parse_scene(scene + R"("mask": "causal", "focus": "b"})")));
  EXPECT_GT(place(last), last.find("All words at once"));
  EXPECT_EQ(place(to_text(trace_scene(parse_scene(scene + R"("focus": "b"})")))),
            std::string::npos);
  const std::string picture = to_text(
      trace_scene(scene_from_sentence("a b c d e f g h i j k l m n o p", {.causal = true})));
  EXPECT_GT(place(picture), picture.find("Scores of"));
}

TEST(RenderText, PaddingIsNotRemarkedOn) {
  // The first padded query is the strongest of its item, the second the most even.
  const std::string remarks = to_text(trace_scene(parse_scene(
      R"({"tokens": [["a", "b", "-", "-"], ["c", "d", "e", "f"]],
          "embeddings": [[[1, 0], [0, 2], [9, 0], [9, 4.5]], [[1, 0], [0, 1], [1, 1], [2, 1]]],
          "mask": {"key_lengths": [2, 4]}})")));
  EXPECT_THAT(remarks, HasSubstr("Sentence 1 of 2: Strongest link: \"b\" looks at itself"));
  EXPECT_THAT(remarks, HasSubstr("Sentence 1 of 2: Most even: \"a\""));
  EXPECT_THAT(remarks, HasSubstr("Sentence 2 of 2: Most even: "));
  // Keys that another rule hides are words, and so are the queries of padded keys of a source.
  const std::string hidden = to_text(trace_scene(parse_scene(
      R"({"tokens": ["a", "b", "c"], "embeddings": [[1], [1], [1]], "mask": {"prefix": 1}})")));
  EXPECT_THAT(hidden, HasSubstr("\"a\", \"b\" and \"c\" look at one word only."));
  const std::string source = to_text(trace_scene(parse_scene(
      R"({"tokens": ["a", "b", "c"], "embeddings": [[1], [1], [1]],
          "source": {"tokens": ["x", "y"], "embeddings": [[1], [1]]},
          "mask": {"key_lengths": 1}})")));
  EXPECT_THAT(source, HasSubstr("\"a\", \"b\" and \"c\" look at one word only."));
}

TEST(RenderText, NegativeNumbersHaveAnAxis) {
  const std::string text = to_text(trace_scene(parse_scene(
      R"({"tokens": ["a", "b", "c", "d"], "embeddings": [[1], [-0.5], [0], [0.25]],
          "score": {"scale": 1}})")));
  EXPECT_THAT(text, HasSubstr("   1.0000         │#############\n"));
  EXPECT_THAT(text, HasSubstr("  -0.5000  #######│\n"));
  EXPECT_THAT(text, HasSubstr("   0.0000         │\n"));
  EXPECT_THAT(text, HasSubstr("   0.2500         │###\n"));
  const std::string markdown = to_markdown(trace_scene(
      parse_scene(R"({"tokens": ["a", "b"], "embeddings": [[1], [-1]], "score": {"scale": 1}})")));
  // Other leading spaces would collapse.
  std::string indent;
  for (int i = 0; i < 10; ++i) indent += "\u00A0";
  EXPECT_THAT(markdown, HasSubstr("| `" + indent + "│##########` |"));
  EXPECT_THAT(markdown, HasSubstr("| `##########│` |"));
}

TEST(RenderText, ScaleRemarkNamesTheOtherSetting) {
  const auto text = [](const std::string& options) {
    return to_text(trace_scene(parse_scene(
        R"({"tokens": ["a", "b"], "embeddings": [[1, 2, 3, 4], [2, 3, 4, 5]])" + options + "}")));
  };
  EXPECT_THAT(text(""), HasSubstr("   Scaled by 1/sqrt(head_dim) = 0.5; \"score\": {\"scale\": 1} "
                                  "leaves the scores as they are.\n"));
  EXPECT_THAT(text(R"(, "score": {"scale": 0.25})"), HasSubstr("   Scaled by 0.25; \"score\""));
  EXPECT_THAT(text(R"(, "score": {"scale": 1})"),
              HasSubstr("   Not scaled; \"score\": {\"scale\": \"1/sqrt(head_dim)\"} multiplies "
                        "the scores by 1/sqrt(4) = 0.5.\n"));
  EXPECT_THAT(text(R"(, "heads": 2, "score": {"scale": 1})"), HasSubstr("1/sqrt(2) = 0.7071"));
  EXPECT_THAT(text(R"(, "focus": null)"), HasSubstr("Scaled by"));
  const std::string either_way = text(R"(, "heads": 4)");  // 1/sqrt(1) is 1
  EXPECT_THAT(either_way, Not(HasSubstr("Scaled by")));
  EXPECT_THAT(either_way, Not(HasSubstr("Not scaled")));
  EXPECT_THAT(to_text(trace_scene(load_scene(FOVEA_SCENES "/additive_score.json"))),
              Not(HasSubstr("Not scaled;")));
}

TEST(RenderText, SinksAndEmptyRowsAreExplained) {
  const std::string sink = to_text(trace_scene(parse_scene(
      R"({"tokens": ["a", "b"], "embeddings": [[1], [1]], "score": {"sinks": [2.0]}})")));
  EXPECT_THAT(sink, HasSubstr("what a row lacks to one, the sink takes."));
  EXPECT_THAT(sink, HasSubstr("with exp(sink) in the sum"));
  EXPECT_THAT(sink, Not(HasSubstr("adds up to one")));
  const std::string blind = to_text(trace_scene(
      parse_scene(R"({"tokens": ["a", "b"], "embeddings": [[1], [1]], "mask": {"prefix": 0}})")));
  EXPECT_THAT(blind, HasSubstr("\"a\" may see nothing: its weights and its context are 0."));
}

TEST(RenderText, NegativeWeightsAreNotCalledEven) {
  const std::string text = to_text(trace_scene(parse_scene(
      R"({"tokens": ["a", "b", "c"], "embeddings": [[1, 2], [-1, -3], [0.5, 0]],
          "normalizations": ["sum"], "score": {"scale": 1}})")));
  EXPECT_THAT(text, Not(HasSubstr("Most even")));
}

TEST(RenderText, ScoresShowTheirWeights) {
  const std::string general = to_text(trace_scene(parse_scene(
      R"({"tokens": ["a", "b"], "embeddings": [[1, 2], [3, 4]],
          "score": {"kind": "general", "weights": [[7, 0], [0, 9]]}})")));
  EXPECT_THAT(general, HasSubstr("   W  0  1\n      7  0\n      0  9\n"));
  const std::string additive =
      to_text(trace_scene(load_scene(FOVEA_SCENES "/additive_score.json")));
  EXPECT_THAT(additive, HasSubstr("hidden layer"));
  EXPECT_THAT(additive, HasSubstr("   U "));
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
  EXPECT_THAT(text, HasSubstr("Shown: the 12 words with the largest weights."));
  for (const std::string& line : lines_of(text)) EXPECT_LE(display_width(line), 100) << line;
}

TEST(RenderText, NarrowTextDropsBarsBeforeProducts) {
  const Trace trace = trace_scene(scene_from_sentence("one two three", {.dim = 3, .causal = true}));
  EXPECT_THAT(to_text(trace, {.width = 120}), HasSubstr(" =  1.3975  0.8068  0.8068  ####"));
  EXPECT_THAT(to_text(trace, {.width = 90}), HasSubstr(" =  1.3975  0.8068  0.8068\n"));
  EXPECT_THAT(to_text(trace, {.width = 60}), HasSubstr(" > three  1.3975  0.8068  0.8068  ####"));
}

TEST(RenderText, ManyColumnsAreTruncated) {
  for (const std::string& line : lines_of(sentence(3, 200))) {
    EXPECT_LE(display_width(line), 100) << line;
  }
}

const std::string kHostile =
    R"*({"title": "\u001b[2J<script>alert(1)</script> | **bold** [x](http://y)",)*"
    R"*("tokens": ["\u001b]0;owned\u0007", "<img src=x onerror=alert(1)>", "a|b`c`",)*"
    R"*("\u202eabc"], "embeddings": [[1, 2], [3, 4], [5, 6], [7, 8]],)*"
    R"*("notes": {"scores": "<script>alert(2)</script>\u001b[31m", "scene": "# heading"}})*";

TEST(RenderText, HostileTextIsEscaped) {
  const std::string text = to_text(trace_scene(parse_scene(kHostile)));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("\x07")));
  EXPECT_THAT(text, Not(HasSubstr("\u202e")));
  EXPECT_THAT(text, HasSubstr("\\x1b[2J<script>"));
}

TEST(RenderMarkdown, HostileTextIsEscaped) {
  const std::string markdown = to_markdown(trace_scene(parse_scene(kHostile)));
  EXPECT_THAT(markdown, Not(HasSubstr("<script")));
  EXPECT_THAT(markdown, Not(HasSubstr("<img")));
  EXPECT_THAT(markdown, Not(HasSubstr("\x1b")));
  EXPECT_THAT(markdown, HasSubstr("\\*\\*bold\\*\\* \\[x\\]"));
  EXPECT_THAT(markdown, HasSubstr("a\\|b\\`c\\`"));
  EXPECT_THAT(markdown, HasSubstr("\\# heading"));
}

TEST(RenderMarkdown, TablesAreWellFormed) {
  for (const auto& path : example_scenes()) {
    const std::string markdown = to_markdown(trace_scene(load_scene(path.string())));
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
  // A column switches to scientific notation if half of its numbers are small, but not if only a
  // third are.
  EXPECT_THAT(show({0.5, 0.25, 1e-9}, 4), ElementsAre("0.50", "0.25", "0.00"));
  EXPECT_THAT(show({0.5, 1e-9}, 2), ElementsAre("5e-01", "1e-09"));
  EXPECT_THAT(show({0.5, HUGE_VAL, -HUGE_VAL}, 4), ElementsAre(" 0.5", " inf", "-inf"));
  EXPECT_THAT(show({-0.0, 1}, 4), ElementsAre("0", "1"));
}

TEST(NumberText, SmallSharesAreBounds) {
  const auto show = [](std::initializer_list<double> values, int precision) {
    const Tensor row = Tensor::matrix({values});
    const NumberText text(row, precision, SmallNumbers::kBound);
    std::vector<std::string> shown;
    for (const double value : values) shown.push_back(text.padded(value));
    return shown;
  };
  EXPECT_THAT(show({0.9999, 1.2e-5, 0}, 4), ElementsAre(" 0.9999", "<0.0001", "      0"));
  EXPECT_THAT(show({0.00005, 0.000049}, 4), ElementsAre(" 0.0001", "<0.0001"));
  EXPECT_THAT(show({1e-9, 1e-9}, 3), ElementsAre("<0.001", "<0.001"));
  EXPECT_THAT(show({1.5, -1e-9}, 2), ElementsAre("   1.5", ">-0.01"));
  EXPECT_THAT(show({0.6, 0.4}, 0), ElementsAre(" 1", "<1"));
  EXPECT_THAT(show({1, 0}, 4), ElementsAre("1", "0"));
}

TEST(Pooled, CellsAreMeansOfTheirRegion) {
  const Tensor matrix = Tensor::matrix({{1, 3, 5}, {5, 7, -HUGE_VAL}, {0, 0, -HUGE_VAL}});
  const Tensor pooled = pooled_mean(matrix, 2, 2);  // rows 0 | 1 2, columns 0 | 1 2
  EXPECT_EQ(pooled.value({0, 0}), 1.0);
  EXPECT_EQ(pooled.value({0, 1}), 4.0);
  EXPECT_EQ(pooled.value({1, 0}), 2.5);
  EXPECT_EQ(pooled.value({1, 1}), 3.5);  // masked cells are skipped
  EXPECT_EQ(pooled_mean(matrix, 3, 3).value({2, 2}), -HUGE_VAL);
  EXPECT_EQ(pooled_mean(matrix, 100, 100).shape(), (Shape{3, 3}));
}

TEST(RenderText, QuestionsAreListedWithTheirAnswers) {
  const Trace trace = trace_scene(parse_scene(R"({
    "tokens": ["a", "b"], "embeddings": [[0, 1], [1, 1]], "score": {"scale": 1}, "heads": 2,
    "questions": [{"step": "scores", "index": [1, 0, 1], "ask": "How much?"},
                  {"step": "focus.weights", "index": [0, 0], "ask": "And now?"}]})"));
  EXPECT_THAT(to_text(trace), HasSubstr("Questions\n"));
  EXPECT_THAT(to_text(trace), HasSubstr("How much? Answer: 1\n"));
  EXPECT_THAT(to_text(trace), HasSubstr("And now? Answer: 0.5000\n"));
  EXPECT_THAT(to_markdown(trace), HasSubstr("\n\n- How much? Answer\\: 1\n"));
  EXPECT_TRUE(trace.checks.empty());
}

}  // namespace
}  // namespace fovea::scene
