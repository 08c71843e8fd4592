// SPDX-License-Identifier: Apache-2.0
//
// The slides of a trace: a slide per step, self-contained, complete without the script, and safe
// against markup in a scene's words.

#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/error.h"
#include "fovea/scene.h"

#include "support/files.h"

namespace fovea::scene {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string slides_of(const std::string& scene, const PageOptions& options = {}) {
  return to_slides(trace_scene(parse_scene(scene)), options);
}

std::string slides_example(const std::string& name, const PageOptions& options = {}) {
  return to_slides(trace_scene(load_scene(FOVEA_SCENES "/" + name + ".json")), options);
}

/// Returns the texts between each `before` and the next `after`.
std::vector<std::string> between(std::string_view text, std::string_view before,
                                 std::string_view after) {
  std::vector<std::string> found;
  for (std::size_t at = text.find(before); at != std::string_view::npos;
       at = text.find(before, at)) {
    at += before.size();
    found.emplace_back(text.substr(at, text.find(after, at) - at));
  }
  return found;
}

std::vector<std::string> slide_steps(const std::string& deck) {
  return between(deck, "data-step=\"", "\"");
}

TEST(Slides, EveryStepIsOnASlide) {
  for (const auto& path : test::example_scenes()) {
    const Trace trace = trace_scene(load_scene(path.string()));
    const std::string deck = to_slides(trace);
    std::multiset<std::string> shown;
    for (const std::string& slide : between(deck, "<section class=\"slide\"", ">")) {
      std::istringstream steps(slide_steps(slide + ">")[0]);
      for (std::string step; steps >> step;) shown.insert(step);
    }
    for (const Step& step : trace.steps) {
      EXPECT_EQ(shown.count(step.name), 1U) << path << ' ' << step.name;
    }
  }
}

TEST(Slides, TheFirstHasTheTitleAndTheLastEverything) {
  const std::string deck = slides_example("001_your_journey");
  const auto slides = between(deck, "<section class=\"slide", "</section>");
  EXPECT_EQ(slides.size(), 13U);
  EXPECT_THAT(slides.front(), HasSubstr("<h1><bdi>Your journey starts with one step</bdi></h1>"));
  EXPECT_THAT(slides.front(), HasSubstr("6 words, 3 numbers each"));
  EXPECT_THAT(slides.front(), HasSubstr("The simplest attention there is"));
  EXPECT_THAT(slides.back(), HasSubstr("<h1>Everything at once</h1>"));
  EXPECT_THAT(slides.back(), HasSubstr("<mi>softmax</mi>"));
  EXPECT_THAT(slides.back(), HasSubstr("Strongest link"));
  EXPECT_EQ(between(deck, "class=\"slide front\"", ">").size(), 1U);
  // Numbers of slides are their addresses.
  for (std::size_t i = 0; i < slides.size(); ++i) {
    EXPECT_THAT(slides[i], HasSubstr("id=\"" + std::to_string(i + 1) + '"'));
  }
}

TEST(Slides, FormulaReadingAndNotesAreOnTheSlideOfTheirStep) {
  const auto slides =
      between(slides_example("001_your_journey"), "<section class=\"slide", "</section>");
  for (const std::string& slide : slides) {
    const bool of_scores = slide_steps(slide)[0] == "focus.scores";
    EXPECT_EQ(slide.find("A dot product is large") != std::string::npos, of_scores);
    if (!of_scores) continue;
    EXPECT_THAT(slide, HasSubstr("<math"));
    EXPECT_THAT(slide, HasSubstr("How well does each word match"));
    EXPECT_THAT(slide, HasSubstr("0.55·0.43 + 0.87·0.15 + 0.66·0.89 ="));
  }
}

TEST(Slides, QuestionsAreOnTheSlideBeforeTheLast) {
  const std::string deck = slides_of(
      R"({"tokens": ["a", "b"], "embeddings": [[1], [2]], "score": {"scale": 1},
          "questions": [{"step": "scores", "index": [1, 0], "ask": "What is 2 < 3?", "hint": "2 x 1"},
                        {"step": "weights", "index": [0, 0], "ask": "And then?"}]})");
  const auto slides = between(deck, "<section class=\"slide", "</section>");
  const std::string& asking = slides[slides.size() - 2];
  EXPECT_THAT(asking, HasSubstr("<h1>Questions</h1>"));
  EXPECT_THAT(asking, HasSubstr("<b>Question 1.</b> What is 2 &lt; 3?"));
  EXPECT_THAT(asking, HasSubstr("<summary>Answer</summary><p>2</p>"));
  EXPECT_THAT(asking, HasSubstr("<p class=\"hint\">2 x 1</p>"));
  EXPECT_THAT(asking, HasSubstr("And then?"));
}

TEST(Slides, NeedNoOtherFile) {
  for (const auto& path : test::example_scenes()) {
    const std::string deck = to_slides(trace_scene(load_scene(path.string())));
    for (const char* fetching : {" src=", " href=", "@import", "url(", "fetch(", "<link"}) {
      EXPECT_THAT(deck, Not(HasSubstr(fetching))) << path;
    }
    // Only names of namespaces.
    for (const std::string& address : between(deck, "http", "\"")) {
      EXPECT_TRUE(address.starts_with("://www.w3.org/")) << path << ' ' << address;
    }
    EXPECT_LT(deck.size(), std::size_t{150} << 10) << path;
  }
}

TEST(Slides, ShowMasksOverflowAndHeads) {
  EXPECT_THAT(slides_example("causal_mask"), HasSubstr("<td class=\"m\""));
  EXPECT_THAT(slides_example("overflow"), HasSubstr("<td class=\"odd\">nan</td>"));
  EXPECT_THAT(slides_example("two_heads"), HasSubstr("<figcaption>head 1</figcaption>"));
}

TEST(Slides, ManyMatricesAreThoseOfOneSentence) {
  EXPECT_THAT(slides_example("padded_batch"), HasSubstr("Sentence 2 of 2"));
  const std::string row = "[[1, 0, 0, 1], [0, 1, 1, 0]]";
  const std::string scene = R"({"tokens": [["a", "b"], ["c", "d"], ["e", "f"]], "embeddings": [)" +
                            row + ", " + row + ", " + row + R"(], "heads": 2, "focus": [1, 0]})";
  const std::string deck = slides_of(scene);
  EXPECT_THAT(deck, HasSubstr("Sentence 2 of 3, head 1"));
  EXPECT_THAT(deck, Not(HasSubstr("<figcaption>Sentence 1 of 3")));
}

TEST(Slides, LargeMatricesAreDrawnWithoutAScript) {
  std::string words;
  for (int i = 0; i < 60; ++i) words += "w" + std::to_string(i) + ' ';
  const std::string deck = to_slides(trace_scene(scene_from_sentence(words, {.causal = true})));
  EXPECT_THAT(deck, Not(HasSubstr("<canvas")));
  EXPECT_THAT(deck, HasSubstr("viewBox=\"0 0 48 48\""));
  EXPECT_THAT(deck, HasSubstr("60 x 60 numbers"));
}

TEST(Slides, MarkupInWordsIsText) {
  const std::string deck = slides_of(
      R"({"title": "</title><script>", "tokens": ["<b>", "]]></script>"], "embeddings": [[1], [2]],
          "notes": {"scores": "<img src=x>"}})");
  EXPECT_THAT(deck, HasSubstr("&lt;b&gt;"));
  EXPECT_THAT(deck, HasSubstr("]]&gt;&lt;/script&gt;"));
  for (const char* markup : {"<b>", "<img", "</title><"}) {
    EXPECT_THAT(deck, Not(HasSubstr(markup)));
  }
}

TEST(Slides, SpeakTheLanguageOfTheReader) {
  const std::string german = slides_example("001_your_journey", {.language = "de"});
  EXPECT_THAT(german, HasSubstr("lang=\"de\""));
  EXPECT_THAT(german, Not(HasSubstr("Everything at once")));
  EXPECT_THROW(slides_example("001_your_journey", {.language = "tlh"}), InvalidArgument);
}

}  // namespace
}  // namespace fovea::scene
