// SPDX-License-Identifier: Apache-2.0
//
// Questions of a scene: each selects one number of a step. And "naive", another name of
// "softmax_unshifted".

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/error.h"
#include "fovea/scene.h"

namespace fovea::scene {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kBeginning = R"({"tokens": ["a", "b"], "embeddings": [[1, 2], [3, 4]], )";

/// Returns the error of a scene with these keys and one question, or "no error".
std::string error_of(const std::string& question, const std::string& keys = "") {
  try {
    trace_scene(parse_scene(kBeginning + keys + R"("questions": [{"ask": "How much?", )" +
                            question + "}]}"));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(Questions, HaveAHintAndATolerance) {
  const Scene scene = parse_scene(std::string(kBeginning) + R"("questions": [
    {"step": "weights", "index": [1, 0], "ask": "How much of \"a\"?", "hint": "exp(11) is large."},
    {"step": "focus.row_sums", "ask": "And in total?", "rtol": 0.1}]})");
  ASSERT_EQ(scene.questions.size(), 2U);
  const Question& first = scene.questions[0];
  EXPECT_EQ(first.step, "weights");
  EXPECT_THAT(first.index, ElementsAre(1, 0));
  EXPECT_EQ(first.ask, "How much of \"a\"?");
  EXPECT_EQ(first.hint, "exp(11) is large.");
  EXPECT_EQ(first.tolerance.kind, Tolerance::Kind::kDigits);
  EXPECT_EQ(first.tolerance.digits, 2);
  EXPECT_EQ(first.place, "questions[0]");
  EXPECT_THAT(scene.questions[1].index, ElementsAre());
  EXPECT_EQ(scene.questions[1].hint, "");
  EXPECT_EQ(scene.questions[1].tolerance.kind, Tolerance::Kind::kRelative);
  EXPECT_EQ(scene.questions[1].tolerance.rtol, 0.1);
  EXPECT_EQ(trace_scene(scene).scene.questions.size(), 2U);
}

TEST(Questions, AboutTheFocusBelongToIt) {
  const Scene scene = parse_scene(std::string(kBeginning) + R"("focus": "b", "questions": [
    {"step": "focus.weights", "index": [0], "ask": "How much of \"b\" is for \"a\"?"},
    {"step": "weights", "index": [1, 0], "ask": "And now?"}]})");
  Scene same = scene;
  set_focus(same, "b");
  EXPECT_EQ(same.questions.size(), 2U);
  Scene other = scene;
  set_focus(other, "a");
  ASSERT_EQ(other.questions.size(), 1U);
  EXPECT_EQ(other.questions[0].ask, "And now?");
}

TEST(Questions, SelectOneNumberOfAStep) {
  EXPECT_EQ(error_of(R"("step": "weights", "index": [1, 1])"), "no error");
  EXPECT_EQ(error_of(R"("step": "focus.weights", "index": 1)"), "no error");
  EXPECT_EQ(error_of(R"("step": "focus.row_sums")"), "no error");
  EXPECT_EQ(error_of(R"("step": "weights", "index": [1, 2])"),
            "questions[0].index: expected the index of one number of weights [2, 2], got [1, 2]");
  EXPECT_EQ(error_of(R"("step": "weights", "index": 1)"),
            "questions[0].index: expected the index of one number of weights [2, 2], got [1]");
  EXPECT_EQ(error_of(R"("step": "weights")"),
            "questions[0].index: expected the index of one number of weights [2, 2], got []");
  EXPECT_EQ(
      error_of(R"("step": "focus.weights", "index": [0, 1])"),
      "questions[0].index: expected the index of one number of focus.weights [2], got [0, 1]");
  EXPECT_EQ(error_of(R"("step": "focus.row_sums", "index": 0)"),
            "questions[0].index: expected the index of one number of focus.row_sums [], got [0]");
}

TEST(Questions, AreAboutStepsOfTheScene) {
  EXPECT_THAT(error_of(R"("step": "query", "index": [0, 0])"),
              StartsWith("questions[0].step: expected a step of this scene, got \"query\"; it has: "
                         "tokens, embeddings, "));
  EXPECT_THAT(error_of(R"("step": "focus.weights", "index": 0)", R"("focus": null, )"),
              StartsWith("questions[0].step: expected a step of this scene, got "
                         "\"focus.weights\"; it has: "));
  // With heads, an index has the head too.
  EXPECT_EQ(error_of(R"("step": "weights", "index": [1, 0, 1])", R"("heads": 2, )"), "no error");
  EXPECT_THAT(error_of(R"("step": "weights", "index": [1, 0])", R"("heads": 2, )"),
              HasSubstr("of weights [2, 2, 2], got [1, 0]"));
}

TEST(Questions, BuiltInCodeAreChecked) {
  Scene scene = parse_scene(std::string(kBeginning) + R"("title": "T"})");
  scene.questions.push_back({"weights", {0, -1}, "How much?", "", {}, "questions[0]"});
  EXPECT_THROW(trace_scene(scene), InvalidArgument);
}

TEST(Naive, IsAnotherNameOfTheUnshiftedSoftmax) {
  const Trace trace = trace_scene(parse_scene(std::string(kBeginning) + R"(
    "normalizations": ["naive", "softmax"], "notes": {"weights[naive]": "A note."},
    "questions": [{"step": "exponentials[naive]", "index": [0, 0], "ask": "How large?"}],
    "expect": [{"step": "row_sums[naive]", "values": [1, 1], "digits": 4}]})"));
  EXPECT_TRUE(trace.passed());
  EXPECT_EQ(trace.scene.normalizations[0], reference::Normalization::kSoftmaxUnshifted);
  EXPECT_EQ(trace.scene.notes[0].first, "weights[softmax_unshifted]");
  EXPECT_EQ(trace.scene.questions[0].step, "exponentials[softmax_unshifted]");
  ASSERT_NE(trace.find("weights[naive]"), nullptr);
  EXPECT_EQ(trace.find("weights[naive]"), trace.find("weights[softmax_unshifted]"));
  EXPECT_EQ(trace.find("weights[naive]")->name, "weights[softmax_unshifted]");
  EXPECT_THAT(to_json(trace), testing::Not(HasSubstr("[naive]")));
  EXPECT_THAT(to_text(trace), HasSubstr("naive softmax"));
}

}  // namespace
}  // namespace fovea::scene
