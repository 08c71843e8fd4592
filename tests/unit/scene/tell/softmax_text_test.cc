// SPDX-License-Identifier: Apache-2.0
//
// The table of softmax in text and Markdown: its columns, totals and remarks, and what is left out
// of a narrow one.

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/scene.h"

#include "scene/trace/softmax_table.h"

namespace fovea::scene {
namespace {

using testing::HasSubstr;
using testing::Not;

Trace example(const std::string& name) {
  return trace_scene(load_scene(FOVEA_SCENES "/" + name + ".json"));
}

Trace parsed(const std::string& text) { return trace_scene(parse_scene(text)); }

TEST(SoftmaxText, HasTheColumnsOfEveryNormalization) {
  EXPECT_THAT(
      to_text(example("001_your_journey"), {.width = 110}),
      HasSubstr("             score  divided by sum  exp(score)  naive softmax    − max     exp  "
                "softmax\n"
                "   Your     0.9544          0.1455      2.5971         0.1385  -0.5406  0.5824   "
                "0.1385  ############\n"
                " > journey  1.4950          0.2278      4.4593         0.2379   0.0000  1.0000   "
                "0.2379  ####################\n"));
  EXPECT_THAT(to_text(example("001_your_journey"), {.width = 110}),
              HasSubstr("   max      1.4950\n"
                        "   sum      6.5617          1.0000     18.7453         1.0000           "
                        "4.2036   1.0000\n"));
}

TEST(SoftmaxText, NarrowTablesOmitBarsThenColumnsOfLessUse) {
  const auto header = [](int width) {
    std::istringstream lines(to_text(example("001_your_journey"), {.width = width}));
    for (std::string line; std::getline(lines, line);) {
      if (line.find("divided by sum  ") != std::string::npos) return line;
    }
    return std::string("no table");
  };
  EXPECT_EQ(header(100),
            "             score  divided by sum  exp(score)  naive softmax    − max     exp  "
            "softmax");
  EXPECT_EQ(header(80),
            "             score  divided by sum  naive softmax    − max     exp  softmax");
  EXPECT_EQ(header(70), "            divided by sum  naive softmax    − max     exp  softmax");
  EXPECT_EQ(header(60), "            divided by sum  naive softmax     exp  softmax");
  // The row of the maximum has no number in the columns that are left.
  EXPECT_THAT(to_text(example("001_your_journey"), {.width = 60}), Not(HasSubstr("   max\n")));
}

TEST(SoftmaxText, WithoutSoftmaxThereIsNoMaximum) {
  const std::string text = to_text(parsed(R"({"tokens": ["a", "b"], "embeddings": [[1], [2]],
                         "normalizations": ["sum"], "score": {"scale": 1}})"));
  EXPECT_THAT(text, HasSubstr("        score  divided by sum\n"
                              " > a        1          0.3333  ##########\n"
                              "   b        2          0.6667  ####################\n"
                              "   sum      3          1.0000\n"));
  EXPECT_THAT(text, Not(HasSubstr("   max")));
}

TEST(SoftmaxText, NaiveOverflowIsShownAndExplainedOnce) {
  const std::string text = to_text(example("overflow"));
  EXPECT_THAT(text,
              HasSubstr(" > loud     900         inf            nan      0   1.0000   1.0000  "
                        "####################\n"
                        "   quiet      0      1.0000              0   -900        0        0\n"
                        "   both     840         inf            nan    -60  <0.0001  <0.0001\n"
                        "   max      900\n"
                        "   sum                  inf            nan          1.0000   1.0000\n"));
  const std::string remark = "exp(900) is more than the largest float64, 1.8e+308: it becomes inf";
  EXPECT_THAT(text, HasSubstr(remark));
  EXPECT_EQ(text.find(remark, text.find(remark) + 1), std::string::npos);
  EXPECT_THAT(to_markdown(example("overflow")), HasSubstr("| **loud** | `900` | `inf` | `nan` |"));
  // A row that does not overflow has no remark.
  Scene scene = load_scene(FOVEA_SCENES "/overflow.json");
  set_focus(scene, "quiet");
  EXPECT_THAT(to_text(trace_scene(scene)), Not(HasSubstr("is more than the largest")));
}

TEST(SoftmaxText, OtherFaultsOfTheNaiveSoftmax) {
  const auto text = [](const std::string& embeddings, const std::string& options = "") {
    return to_text(parsed(R"({"tokens": ["a", "b"], "embeddings": )" + embeddings +
                          R"(, "score": {"scale": 1}, "normalizations": ["softmax_unshifted"])" +
                          options + "}"));
  };
  EXPECT_THAT(text("[[30], [-30]]"), HasSubstr("exp(900) is more than the largest float64"));
  EXPECT_THAT(text("[[10], [9]]", R"(, "dtype": "float32")"),
              HasSubstr("exp(100) is more than the largest float32, 3.4e+38"));
  EXPECT_THAT(text("[[26.636], [26.636]]"), HasSubstr("The sum of exp(score) is too large"));
  EXPECT_THAT(text("[[30], [-30]]", R"(, "mask": {"dense": [[false, true], [true, true]]})"),
              HasSubstr("Every exp(score) is too small for a number and becomes 0"));
  EXPECT_THAT(text("[[1], [2]]"), Not(HasSubstr("Subtracting the largest score")));
}

TEST(SoftmaxText, SinkHasARowAndAShare) {
  const std::string text = to_text(example("sinks_and_softcap"));
  EXPECT_THAT(text, HasSubstr("   sink    1.0000   0.0000  1.0000   0.2972\n"
                              "   max     1.0000\n"
                              "   sum                      3.3650   1.0000\n"
                              "   The words get 0.7028, the sink gets 0.2972.\n"));
}

TEST(SoftmaxText, SinkHasTheDecimalsItNeeds) {
  const auto text = [](const std::string& embeddings, const std::string& score,
                       const std::string& options = "") {
    return to_text(parsed(R"({"tokens": ["a", "b"], "embeddings": )" + embeddings +
                          R"(, "score": {"scale": 1, )" + score + "}" + options + "}"));
  };
  EXPECT_THAT(text("[[1, 0], [1, 1]]", R"("sinks": [0.5])"),
              HasSubstr("   sink    0.5   -0.5  0.6065   0.2327\n"));
  EXPECT_THAT(text("[[0, 0], [0, 0]]", R"("sinks": [-0.3])"),
              HasSubstr("   sink   -0.3   -0.3  0.7408   0.2703\n"));
  EXPECT_THAT(text("[[1], [2]]", R"("sinks": [-1e308])"), HasSubstr("-1e+308"));
  // The sum of the words' weights is smaller than the rounding error of 1 - sink.
  EXPECT_THAT(text("[[0], [0]]", R"("sinks": [40])"),
              HasSubstr("The words get <0.0001, the sink gets 1."));
  EXPECT_THAT(text("[[0], [0]]", R"("sinks": [800])", R"(, "normalizations": ["naive"])"),
              HasSubstr("The words get 0, the sink gets nan."));
}

TEST(SoftmaxText, MaskedRowsAndRowsWithoutKeys) {
  const std::string text = to_text(parsed(
      R"({"tokens": ["a", "b"], "embeddings": [[1], [2]], "mask": {"prefix": 1}, "focus": "b"})"));
  EXPECT_THAT(text, HasSubstr("   a        2      0    1        1  ####################\n"
                              " > b        ×      ×    ×        ×\n"
                              "   max      2\n"
                              "   sum                  1   1.0000\n"));
  const std::string blind =
      to_text(parsed(R"({"tokens": ["a", "b"], "embeddings": [[1], [2]], "mask": {"prefix": 0}})"));
  EXPECT_THAT(blind, HasSubstr("   sum                  0   0.0000\n"));
  EXPECT_THAT(blind, Not(HasSubstr("   max")));
}

TEST(SoftmaxText, OmittedWordsAreMarkedInTheTable) {
  const std::string text = to_text(
      trace_scene(scene_from_sentence("a b c d e f g h i j k l m n o p q r s t", {.dim = 2})));
  EXPECT_THAT(text, HasSubstr("   …         …        …        …        …\n   max "));
}

TEST(SoftmaxTable, ColumnsAddUpToTheirTotals) {
  const Trace trace = parsed(
      R"({"text": "a b c d e", "seed": 6, "embeddings": {"draw": "randn", "dim": 4}, "heads": 2,
          "mask": "causal", "focus": "d", "score": {"sinks": [0.5, -3]},
          "normalizations": ["softmax_unshifted", "softmax"]})");
  const TraceModel model(trace);
  for (const std::int64_t head : {0, 1}) {
    const SoftmaxTable table(model, head);
    EXPECT_EQ(table.columns().size(), 6U);
    for (const SoftmaxColumn& column : table.columns()) {
      const auto total = table.total(column);
      if (!total) continue;
      double sum = table.sink_value(column);
      for (std::int64_t key = 0; key < 5; ++key) {
        EXPECT_EQ(table.masked(key), key > 3);
        sum += table.value(column, key);
      }
      EXPECT_NEAR(*total, sum, 1e-12 * sum);
    }
    double most = *table.sink();
    for (std::int64_t key = 0; key < 4; ++key) {
      most = std::max(most, table.value(table.columns().front(), key));
    }
    EXPECT_EQ(*table.maximum(), most);
  }
}

}  // namespace
}  // namespace fovea::scene
