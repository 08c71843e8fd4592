// SPDX-License-Identifier: Apache-2.0
//
// The scenes that come with Fovea: all their expectations hold, every complete scene in
// docs/scene.md can be traced, and the note of scene 000 on the origin of its weights is correct.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fovea/random.h"
#include "fovea/scene.h"

#include "support/files.h"

namespace {

using fovea::test::example_scenes;
using fovea::test::read_file;

using fovea::RandomState;
using fovea::Tensor;
using fovea::scene::load_scene;
using fovea::scene::parse_scene;
using fovea::scene::Scene;
using fovea::scene::Trace;
using fovea::scene::trace_scene;

std::filesystem::path scene_path(const std::string& name) {
  return std::filesystem::path(FOVEA_SCENES) / name;
}

std::vector<double> numbers(const Tensor& tensor) {
  const Tensor doubles = fovea::convert(tensor, fovea::DType::kFloat64);
  const auto values = doubles.span<double>();
  return {values.begin(), values.end()};
}

class ExampleScene : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(ExampleScene, MeetsItsExpectations) {
  const Trace trace = trace_scene(load_scene(GetParam().string()));
  EXPECT_FALSE(trace.checks.empty());
  EXPECT_EQ(trace.checks.size(), trace.scene.expect.size());
  for (const auto& check : trace.checks) {
    EXPECT_TRUE(check.passed) << check.step << ": error " << check.max_error << ", allowed "
                              << check.tolerance << "; " << check.message;
  }
  EXPECT_TRUE(trace.passed());
}

TEST_P(ExampleScene, HasATitleAndNotes) {
  const Scene scene = load_scene(GetParam().string());
  EXPECT_NE(scene.title, "Untitled scene");
  EXPECT_GE(scene.notes.size(), 2U);
  // A note without a step would never be shown.
  const Trace trace = trace_scene(scene);
  for (const auto& [name, note] : scene.notes) {
    EXPECT_TRUE(name == "scene" || trace.find(name) != nullptr) << name;
    EXPECT_FALSE(note.empty()) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, ExampleScene, testing::ValuesIn(example_scenes()),
                         [](const auto& test) { return test.param.stem().string(); });

/// Checks the number of expectations of each scene, and of the numbers in them, against the arrays
/// and scalars that the notebooks print.
TEST(NotebookScenes, ExpectEveryPrintedArray) {
  const std::map<std::string, std::pair<std::size_t, std::int64_t>> claims = {
      {"000_general_attention.json", {5, 4 + 4 + 3 + 3 + 12}},
      {"001_your_journey.json", {11, 6 + 3 * (6 + 1) + 3 + 36 + 36 + 18}},
      {"002_batch_of_one.json", {16, 16 + 3 * 16 + 3 * 4 + 3 * 4 + 3 * 16 + 3 * 16}},
      {"003_integer_tokens.json", {9, 4 + 12 + 4 + 4 + 3 + 16 + 16 + 12 + 1}},
      {"004_seeded_weights.json", {10, 12 + 3 * 9 + 3 * 12 + 16 + 16 + 12}},
  };
  for (const auto& [name, claim] : claims) {
    const Scene scene = load_scene(scene_path(name).string());
    EXPECT_EQ(scene.expect.size(), claim.first) << name;
    std::int64_t count = 0;
    for (const auto& expectation : scene.expect) {
      count += expectation.values.defined() ? expectation.values.size()
                                            : static_cast<std::int64_t>(expectation.words.size());
    }
    EXPECT_EQ(count, claim.second) << name;
  }
}

/// Checks that each tolerance wider than the printed digits has a note with the reason.
TEST(NotebookScenes, WidenedTolerancesHaveNotes) {
  for (const std::string name : {"002_batch_of_one.json", "003_integer_tokens.json"}) {
    const Scene scene = load_scene(scene_path(name).string());
    const bool float32 = scene.arithmetic == fovea::DType::kFloat32;
    for (const auto& expectation : scene.expect) {
      const auto& tolerance = expectation.tolerance;
      using Kind = fovea::scene::Tolerance::Kind;
      const bool printed = tolerance.kind == Kind::kExact ||
                           (tolerance.kind == Kind::kDigits && tolerance.digits == 8) ||
                           (tolerance.kind == Kind::kSignificant && tolerance.digits == 8);
      EXPECT_TRUE(printed || !expectation.note.empty()) << name << " " << expectation.place;
      if (tolerance.kind == Kind::kRelative) {
        EXPECT_EQ(tolerance.atol, float32 ? 1e-7 : 1e-8) << name << " " << expectation.place;
        EXPECT_EQ(tolerance.rtol, 0.0) << name << " " << expectation.place;
      }
    }
  }
}

/// Checks the note of scene 000: the weights that the notebook prints and those of its results
/// are consecutive in one random stream.
TEST(NotebookScenes, GeneralAttentionWeightsComeFromOneStream) {
  RandomState stream(42);
  for (int i = 0; i < 72; ++i) stream.next_word();
  EXPECT_EQ(numbers(stream.randint(0, 9, {3, 3})),
            (std::vector<double>{8, 4, 1, 3, 6, 7, 2, 0, 3}));
  EXPECT_EQ(numbers(stream.randint(0, 3, {3, 3})),
            (std::vector<double>{1, 1, 1, 1, 1, 1, 1, 0, 2}));
  EXPECT_EQ(numbers(stream.randint(0, 3, {3, 3})),
            (std::vector<double>{1, 1, 1, 1, 1, 1, 2, 2, 1}));

  const Scene scene = load_scene(scene_path("000_general_attention.json").string());
  ASSERT_TRUE(scene.projections);
  EXPECT_EQ(numbers(stream.randint(0, 3, {3, 3})), numbers(scene.projections->query));
  EXPECT_EQ(numbers(stream.randint(0, 3, {3, 3})), numbers(scene.projections->key));
  EXPECT_EQ(numbers(stream.randint(0, 3, {3, 3})), numbers(scene.projections->value));

  const auto note = std::find_if(scene.notes.begin(), scene.notes.end(),
                                 [](const auto& entry) { return entry.first == "query_weights"; });
  ASSERT_NE(note, scene.notes.end());
  for (const std::string_view part :
       {"seed 42", "72 raw words", "[[8, 4, 1], [3, 6, 7], [2, 0, 3]]",
        "[[1, 1, 1], [1, 1, 1], [1, 0, 2]]", "[[1, 1, 1], [1, 1, 1], [2, 2, 1]]"}) {
    EXPECT_NE(note->second.find(part), std::string::npos) << part;
  }
}

/// Checks that the weights of notebook 004 are drawn from a seed and not stored in its file.
TEST(NotebookScenes, SeededWeightsAreDrawn) {
  const auto json = nlohmann::json::parse(read_file(scene_path("004_seeded_weights.json")));
  EXPECT_EQ(json.at("seed"), 42);
  EXPECT_EQ(json.at("projections").at("draw"), "randint");
  EXPECT_FALSE(json.at("projections").contains("query"));
}

/// A fenced block of docs/scene.md: its first line number and its text.
struct Block {
  int line;
  std::string text;
};

std::vector<Block> json_blocks(const std::string& markdown) {
  std::vector<Block> blocks;
  std::istringstream lines(markdown);
  std::string line;
  bool inside = false;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (inside && line == "```") {
      inside = false;
    } else if (inside) {
      blocks.back().text += line + "\n";
    } else if (line == "```json") {
      inside = true;
      blocks.push_back({number, ""});
    }
  }
  return blocks;
}

TEST(SceneGuide, EveryWholeSceneCanBeTraced) {
  int scenes = 0;
  int with_checks = 0;
  for (const Block& block :
       json_blocks(read_file(std::filesystem::path(FOVEA_DOCS) / "scene.md"))) {
    if (!block.text.starts_with("{")) continue;
    if (block.text.find("\"tokens\"") == std::string::npos &&
        block.text.find("\"text\"") == std::string::npos) {
      continue;
    }
    SCOPED_TRACE("docs/scene.md, line " + std::to_string(block.line));
    ++scenes;
    Trace trace;
    ASSERT_NO_THROW(trace = trace_scene(parse_scene(block.text)));
    EXPECT_TRUE(trace.passed());
    if (!trace.checks.empty()) ++with_checks;
  }
  EXPECT_GE(scenes, 16);
  EXPECT_GE(with_checks, 8);
}

}  // namespace
