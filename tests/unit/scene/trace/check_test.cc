// SPDX-License-Identifier: Apache-2.0
//
// Expectations: the tolerance rules, and everything that a check must reject.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/scene.h"

namespace fovea::scene {
namespace {

using testing::HasSubstr;

/// Returns the first check of a one-word scene, whose `context` equals `embedding`.
Check check_one(const std::string& embedding, const std::string& expectation) {
  const Trace trace =
      trace_scene(parse_scene(R"({"tokens": ["a"], "embeddings": [[)" + embedding +
                              R"(]], "expect": [{"step": "context", )" + expectation + "}]}"));
  return trace.checks.at(0);
}

bool holds(const std::string& embedding, const std::string& expectation) {
  return check_one(embedding, expectation).passed;
}

TEST(Check, DigitsMeansHalfAUnitOfThatDecimal) {
  EXPECT_TRUE(holds("0.95435", R"("values": [0.9544], "digits": 4)"));  // exactly half a unit off
  EXPECT_TRUE(holds("0.95445", R"("values": [0.9544], "digits": 4)"));
  EXPECT_FALSE(holds("0.954451", R"("values": [0.9544], "digits": 4)"));
  EXPECT_FALSE(holds("0.954349", R"("values": [0.9544], "digits": 4)"));
  EXPECT_TRUE(holds("2.4", R"("values": [2], "digits": 0)"));
  EXPECT_FALSE(holds("2.6", R"("values": [2], "digits": 0)"));
}

TEST(Check, SignificantMeansHalfAUnitOfThatDigit) {
  EXPECT_TRUE(holds("1.85349e-7", R"("values": [1.853e-7], "significant": 4)"));
  EXPECT_FALSE(holds("1.85351e-7", R"("values": [1.853e-7], "significant": 4)"));
  EXPECT_TRUE(holds("12345.4", R"("values": [12345], "significant": 5)"));
  EXPECT_FALSE(holds("12346", R"("values": [12345], "significant": 5)"));
  EXPECT_TRUE(holds("1e-7", R"("values": [1e-7], "significant": 3)"));
  // Across a power of ten, the finer of the two units applies.
  EXPECT_FALSE(holds("0.9999996", R"("values": [1.000000], "significant": 7)"));
  EXPECT_TRUE(holds("0.99999996", R"("values": [1.000000], "significant": 7)"));
  EXPECT_FALSE(holds("0", R"("values": [1e-300], "significant": 1)"));
}

TEST(Check, RelativeAndAbsolute) {
  EXPECT_TRUE(holds("101", R"("values": [100], "rtol": 0.01)"));
  EXPECT_FALSE(holds("101.5", R"("values": [100], "rtol": 0.01)"));
  EXPECT_TRUE(holds("101.5", R"("values": [100], "rtol": 0.01, "atol": 0.5)"));
  EXPECT_FALSE(holds("-100", R"("values": [100], "rtol": 0.01, "atol": 0.5)"));
}

TEST(Check, WholeNumbersAreExact) {
  EXPECT_TRUE(holds("3", R"("values": [3])"));
  EXPECT_FALSE(holds("3.0000000001", R"("values": [3])"));
  EXPECT_FALSE(holds("-3", R"("values": [3])"));
}

TEST(Check, LeadingDimensionsOfOneAreDropped) {
  EXPECT_TRUE(holds("3", R"("values": 3)"));
  EXPECT_TRUE(holds("3", R"("values": [[[3]]])"));
  EXPECT_TRUE(holds("3, 4", R"("values": [[[3, 4]]])"));
  const Check trailing = check_one("3, 4", R"("values": [[3], [4]])");
  EXPECT_FALSE(trailing.passed);
  EXPECT_EQ(trailing.message, "expected shape [2, 1], the step has [1, 2]");
}

TEST(Check, IndexSelectsAPart) {
  EXPECT_TRUE(holds("3, 4", R"("index": 0, "values": [3, 4])"));
  EXPECT_TRUE(holds("3, 4", R"("index": [0, 1], "values": 4)"));
  EXPECT_FALSE(holds("3, 4", R"("index": [0, 0], "values": 4)"));
  EXPECT_EQ(check_one("3, 4", R"("index": [0, 2], "values": 4)").message,
            "expected an index within the step's shape [1, 2], got [0, 2]");
  EXPECT_EQ(check_one("3, 4", R"("index": [0, 0, 0], "values": 4)").message,
            "expected an index within the step's shape [1, 2], got [0, 0, 0]");
}

TEST(Check, OneBadLastElementFails) {
  const Check check = check_one("1, 2, 3, 4", R"("values": [1, 2, 3, 5])");
  EXPECT_FALSE(check.passed);
  EXPECT_EQ(check.max_error, 1.0);
  EXPECT_EQ(check.tolerance, 0.0);
  EXPECT_EQ(check.message, "expected 5, computed 4");
}

TEST(Check, NonfiniteNumbersMatchOnlyThemselves) {
  const auto run = [](const std::string& values, const std::string& tolerance) {
    const Trace trace = trace_scene(parse_scene(
        R"({"tokens": ["a", "b"], "embeddings": [[900], [30]], "mask": "causal", "score":
            {"scale": 1}, "normalizations": ["softmax_unshifted"], "focus": 0,
            "expect": [{"step": "focus.masked_scores", "values": [810000, "-inf"]},
                       {"step": "focus.weights", "values": )" +
        values + tolerance + "}]}"));
    EXPECT_TRUE(trace.checks[0].passed);
    return trace.checks[1].passed;
  };
  EXPECT_TRUE(run("[\"nan\", 0]", ""));
  EXPECT_TRUE(run("[\"nan\", 0]", ", \"digits\": 4"));
  EXPECT_TRUE(run("[\"nan\", 0]", ", \"rtol\": 1"));
  EXPECT_FALSE(run("[\"inf\", 0]", ", \"rtol\": 1"));
  EXPECT_FALSE(run("[1, 0]", ", \"atol\": 1000"));
  EXPECT_FALSE(run("[\"nan\", \"nan\"]", ", \"atol\": 1000"));
}

TEST(Check, TokensAreCompared) {
  const auto run = [](const std::string& expectation) {
    return trace_scene(parse_scene(R"({"tokens": [72, 3], "embeddings": [[1], [2]], "expect": [{)" +
                                   expectation + "}]}"))
        .checks.at(0);
  };
  EXPECT_TRUE(run(R"("step": "tokens", "values": [72, 3])").passed);
  EXPECT_FALSE(run(R"("step": "tokens", "values": [72, 5])").passed);
  EXPECT_FALSE(run(R"("step": "tokens", "values": [72])").passed);
  EXPECT_TRUE(run(R"("step": "tokens", "index": 1, "values": 3)").passed);
  EXPECT_TRUE(run(R"("step": "focus.tokens", "values": 72)").passed);
}

TEST(Check, TheFirstTokenThatDiffersIsNamed) {
  const auto message = [](const std::string& expectation) {
    return trace_scene(parse_scene(R"({"tokens": [["a", "b"], ["c", "\u001bd"]],
                               "embeddings": [[[1], [2]], [[3], [4]]], "expect": [{"step": "tokens", )" +
                                   expectation + "}]}"))
        .checks.at(0)
        .message;
  };
  EXPECT_EQ(message(R"("values": [["a", "b"], ["x", "y"]])"),
            R"(token 2: expected "x", the scene has "c")");
  EXPECT_EQ(message(R"("index": [1], "values": ["c", "d"])"),
            R"(token 1: expected "d", the scene has "\x1bd")");
  EXPECT_EQ(message(R"("index": [1], "values": ["c"])"), "expected 1 token, the scene has 2");
  EXPECT_EQ(message(R"("index": [0], "values": ["b", "b", "b"])"),
            R"(expected 3 tokens, the scene has 2; token 0: expected "b", the scene has "a")");
}

TEST(Check, ManyFailuresOverManyLongWordsStaySmall) {
  // Regression test: each failure used to quote the whole sentence.
  std::string tokens, rows, expect;
  for (int i = 0; i < 1000; ++i) {
    tokens += (i == 0 ? "\"" : ", \"") + std::string(i == 0 ? 100'000 : 100, 'w') + '"';
    rows += i == 0 ? "[1]" : ", [1]";
    expect += i == 0 ? "" : ", ";
    expect += R"({"step": "tokens", "values": ["other"]})";
  }
  const Trace trace = trace_scene(parse_scene(R"({"tokens": [)" + tokens + R"(], "embeddings": [)" +
                                              rows + R"(], "expect": [)" + expect + "]}"));
  ASSERT_EQ(trace.checks.size(), 1000U);
  for (const Check& check : trace.checks) {
    EXPECT_FALSE(check.passed);
    EXPECT_LT(check.message.size(), 200U);
  }
}

TEST(Check, StepMissingFromTheScene) {
  const Trace trace = trace_scene(parse_scene(
      R"({"tokens": ["a"], "embeddings": [[1]], "expect": [{"step": "query", "values": 1}]})"));
  EXPECT_FALSE(trace.passed());
  EXPECT_THAT(trace.checks[0].message, HasSubstr("this scene has no such step; it has: tokens, "));
}

TEST(Check, ReportHasOneLinePerCheck) {
  const Trace trace = trace_scene(parse_scene(
      R"({"title": "Two claims", "tokens": ["a"], "embeddings": [[1, 2]], "expect": [
          {"step": "context", "values": [1, 2]},
          {"step": "context", "index": [0, 1], "values": 2.5, "digits": 1}]})"));
  EXPECT_EQ(
      checks_to_text(trace),
      "ok    context         max error        0  tolerance    exact\n"
      "FAIL  context @ 0, 1  max error      0.5  tolerance     0.05  expected 2.5, computed 2\n"
      "1 of 2 held: Two claims\n");
}

}  // namespace
}  // namespace fovea::scene
