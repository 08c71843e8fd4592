// SPDX-License-Identifier: Apache-2.0
//
// Scenes that learn where to attend: gradients by finite differences, reached targets, unchanged
// parts of a scene, and scenes that cannot learn.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/nn/parameters.h"
#include "fovea/random.h"
#include "fovea/train_scene.h"

#include "support/differences.h"
#include "support/exactness.h"
#include "support/message_of.h"
#include "train/scene_weights.h"
#include "train/wishes.h"

namespace fovea::train {
namespace {

using scene::parse_scene;
using scene::Scene;
using scene::Trace;
using scene::trace_scene;
using testing::ElementsAre;
using testing::HasSubstr;

/// Returns a scene of five words, two of them equal, with the given members.
Scene scene_with(const std::string& members) {
  return parse_scene(R"({"text": "to be or to think", "seed": 7, )" + members + "}");
}
const std::string kDrawn = R"("embeddings": {"draw": "randn", "dim": 4})";

/// One scene for each kind of option that learning supports.
const std::vector<std::string> kScenes = {
    kDrawn + R"(, "learn": {"be": {"or": 0.9}})",
    kDrawn + R"(, "learn": {"be": {"or": 0.5, "@3": 0.3, "think": 0}, "@3": {"@0": 0.6}})",
    kDrawn + R"(, "learn": {"or": {"be": 1}}, "score": {"scale": 0.25, "softcap": 20})",
    kDrawn + R"(, "learn": {"or": {"be": 0.7}}, "mask": {"causal": true, "window": [1, 0]})",
    kDrawn + R"(, "learn": {"think": {"@0": 0.8}}, "mask": "causal", "score": {"alibi": true})",
    kDrawn + R"(, "learn": {"be": {"or": 0.8}}, "score": {"sinks": [0.5]})",
    kDrawn + R"(, "learn": {"be": {"or": 0.8}}, "dtype": "float32")",
    kDrawn + R"(, "learn": {"be": {"or": 0.8}}, "heads": 2,
                "projections": {"draw": "randn", "dim": 8, "value_dim": 6})",
    kDrawn + R"(, "learn": {"be": {"or": 0.8}, "think": {"or": 0.6}}, "heads": 4, "kv_heads": 2,
                "projections": {"draw": "randn", "dim": 8})",
    kDrawn + R"(, "learn": {"be": {"penser": 0.9}, "@0": {"@0": 0.5}},
                "projections": {"draw": "randn", "dim": 3},
                "source": {"text": "etre ou penser", "embeddings": {"draw": "rand", "dim": 6}})",
    kDrawn + R"(, "learn": {"be": {"ou": 0.9}}, "projections": "none", "alignment": "top-left",
                "source": {"text": "etre ou", "embeddings": {"draw": "rand", "dim": 4}},
                "mask": {"prefix": 2}, "normalizations": ["sum", "softmax"])",
};
const std::string kBatch =
    R"({"tokens": [["a", "b", "."], ["c", "d", "a"]], "seed": 1, "mask": {"key_lengths": [2, 3]},
        "embeddings": {"draw": "randn", "dim": 3}, "focus": [1, 0],
        "learn": {"b": {"a": 0.8}, "@1:0": {"d": 0.7}, "@1:2": {"@2": 0.9}}})";

std::vector<Scene> all_scenes() {
  std::vector<Scene> scenes;
  for (const std::string& members : kScenes) scenes.push_back(scene_with(members));
  scenes.push_back(parse_scene(kBatch));
  return scenes;
}

const Tensor& weights_of(const Trace& trace) { return trace.find("weights")->values; }

/// Uses the second notebook's sentence and embeddings.
TEST(TrainScene, OneAttendsToJourney) {
  const Scene before =
      scene::load_scene((std::filesystem::path(FOVEA_SCENES) / "learn_journey.json").string());
  const Learned learned = learn_scene(before);
  EXPECT_EQ(learned.end, LearnEnd::kReached);
  ASSERT_EQ(learned.wishes.size(), 1U);
  EXPECT_TRUE(learned.wishes[0].met);

  const Trace trace = trace_scene(learned.scene);
  const Tensor& weights = weights_of(trace);
  constexpr std::int64_t kOne = 4, kJourney = 1;
  EXPECT_GE(weights.at<double>({kOne, kJourney}), 0.9);
  EXPECT_THAT(learned.wishes[0].after, ElementsAre(weights.at<double>({kOne, kJourney})));
  const Trace begun = trace_scene(before);
  EXPECT_THAT(learned.wishes[0].before,
              ElementsAre(weights_of(begun).at<double>({kOne, kJourney})));
  for (std::int64_t query = 0; query < 6; ++query) {
    double sum = 0.0;
    for (std::int64_t key = 0; key < 6; ++key) {
      EXPECT_GE(weights.at<double>({query, key}), 0.0);
      sum += weights.at<double>({query, key});
    }
    EXPECT_NEAR(sum, 1.0, 6 * 0x1p-53) << query;
  }
}

TEST(TrainScene, EverySceneReachesItsWishes) {
  for (const Scene& scene : all_scenes()) {
    SCOPED_TRACE(scene.json);
    const Learned learned = learn_scene(scene);
    EXPECT_EQ(learned.end, LearnEnd::kReached);
    EXPECT_GT(learned.steps, 0);
    EXPECT_EQ(learned.losses.size(), static_cast<std::size_t>(learned.steps) + 1);
    EXPECT_LT(learned.losses.back(), learned.losses.front());
    const Trace trace = trace_scene(learned.scene);
    const Shape shape{static_cast<std::int64_t>(scene.words.tokens.size()), scene.heads,
                      trace.visible.extent(2), trace.visible.extent(3)};
    const Tensor weights = Tensor(weights_of(trace)).reshaped(shape);
    for (std::size_t i = 0; i < scene.learn.size(); ++i) {
      const scene::Wish& wish = scene.learn[i];
      SCOPED_TRACE(wish.place);
      ASSERT_EQ(learned.wishes[i].after.size(), static_cast<std::size_t>(scene.heads));
      EXPECT_TRUE(learned.wishes[i].met);
      for (std::int64_t head = 0; head < scene.heads; ++head) {
        // The reported weight equals the weight in the scene's trace, and meets the wish.
        const double found = weights.value({wish.item, head, wish.query, wish.key});
        EXPECT_EQ(found, learned.wishes[i].after[static_cast<std::size_t>(head)]);
        if (wish.weight == 0.0) {
          EXPECT_LE(found, 0.005);
        } else {
          EXPECT_GE(found, std::min(wish.weight, 0.995));
        }
      }
    }
  }
}

TEST(TrainScene, PartsThatDoNotLearnStayTheSame) {
  for (const Scene& scene : all_scenes()) {
    SCOPED_TRACE(scene.json);
    const Scene learned = learn_scene(scene).scene;
    const Trace before = trace_scene(scene), after = trace_scene(learned);
    EXPECT_TRUE(test::same_bits(before.visible, after.visible));
    for (const char* step : {"embeddings", "source_embeddings", "value", "value_weights"}) {
      const scene::Step* const was = before.find(step);
      if (was == nullptr) continue;
      EXPECT_TRUE(test::same_bits(was->values, after.find(step)->values)) << step;
    }
    // The steps from scores to weights stay the same, including the mask.
    for (const char* step :
         {"scaled_scores", "softcapped_scores", "biased_scores", "masked_scores", "weights[sum]"}) {
      EXPECT_EQ(before.find(step) == nullptr, after.find(step) == nullptr) << step;
    }
    if (scene.options.score.sinks.empty()) {
      const Tensor sums = convert(after.find("row_sums")->values, DType::kFloat64);
      for (const double sum : sums.span<double>()) {
        EXPECT_NEAR(sum, 1.0, scene.arithmetic == DType::kFloat32 ? 1e-6 : 1e-15);
      }
    }
  }
}

/// A scene without projections starts learning from the identity, which changes no result.
TEST(TrainScene, IdentityChangesNothing) {
  const Scene scene = scene_with(kDrawn + R"(, "heads": 2, "learn": {"be": {"or": 0.01}})");
  const Learned learned = learn_scene(scene);
  EXPECT_EQ(learned.end, LearnEnd::kReached);
  EXPECT_EQ(learned.steps, 0);
  const Trace before = trace_scene(scene), after = trace_scene(learned.scene);
  for (const char* step : {"scores", "weights", "context", "merged_context"}) {
    EXPECT_TRUE(test::same_bits(before.find(step)->values, after.find(step)->values)) << step;
  }
}

TEST(TrainScene, WrittenScenesHoldTheLearnedWeights) {
  for (const Scene& scene : all_scenes()) {
    SCOPED_TRACE(scene.json);
    const Learned learned = learn_scene(scene);
    const Scene read = parse_scene(learned.scene.json);
    EXPECT_TRUE(test::same_bits(read.projections->query, learned.scene.projections->query));
    EXPECT_TRUE(test::same_bits(read.projections->key, learned.scene.projections->key));
    EXPECT_TRUE(test::same_bits(read.projections->value, learned.scene.projections->value));
    EXPECT_TRUE(
        test::same_bits(weights_of(trace_scene(read)), weights_of(trace_scene(learned.scene))));
    // Learning again, from the written scene, takes no further steps.
    EXPECT_EQ(learn_scene(read).steps, 0);
  }
}

TEST(TrainScene, SameSeedGivesTheSameBits) {
  const Scene scene = scene_with(kScenes[1]);
  const auto learned = [&](const LearnOptions& options) { return learn_scene(scene, options); };
  const Learned plain = learned({}), again = learned({});
  EXPECT_EQ(plain.losses, again.losses);
  EXPECT_EQ(plain.scene.json, again.scene.json);
  const Learned seeded = learned({.seed = 3}), seeded_again = learned({.seed = 3});
  EXPECT_EQ(seeded.scene.json, seeded_again.scene.json);
  EXPECT_NE(seeded.scene.json, plain.scene.json);
  EXPECT_NE(seeded.scene.json, learned({.seed = 4}).scene.json);
  // The initial weight of a wish equals the weight in the scene's trace.
  EXPECT_EQ(seeded.wishes[0].before, plain.wishes[0].before);
}

TEST(TrainScene, GradientsMatchFiniteDifferences) {
  for (const Scene& scene : all_scenes()) {
    if (scene.arithmetic != DType::kFloat64) continue;  // differences need float64's precision
    SCOPED_TRACE(scene.json);
    const SceneWeights model(scene);
    const std::int64_t dim = scene.words.embeddings.extent(2);
    const std::int64_t source_dim = scene.source ? scene.source->embeddings.extent(2) : dim;
    const Shape query_shape =
        scene.projections ? scene.projections->query.shape() : Shape({dim, dim});
    const Shape key_shape =
        scene.projections ? scene.projections->key.shape() : Shape({source_dim, source_dim});
    RandomState random(11);
    nn::Parameters parameters(DType::kFloat64);
    nn::Parameter& query = parameters.add("query", query_shape);
    nn::Parameter& key = parameters.add("key", key_shape);
    query.value = random.randn(query_shape);
    key.value = random.randn(key_shape);

    const SceneWeights::Found found = model.forward(query.value, key.value);
    const Wishes wishes(scene, found.visible);
    model.backward(wishes.gradient(found.weights), query, key);
    const auto loss = [&] { return wishes.loss(model.forward(query.value, key.value).weights); };
    EXPECT_TRUE(test::same_gradient(query.gradient, test::differences(query.value, loss)));
    EXPECT_TRUE(test::same_gradient(key.gradient, test::differences(key.value, loss)));
  }
}

TEST(TrainScene, LossIsZeroAtTheTarget) {
  const Scene scene = scene_with(kDrawn + R"(, "learn": {"be": {"or": 0.6, "think": 0.3}})");
  Tensor visible(DType::kBool, {1, 1, 5, 5});
  for (bool& sees : visible.span<bool>()) sees = true;
  const Wishes wishes(scene, visible);
  Tensor weights(DType::kFloat64, {1, 1, 5, 5});
  weights.at<double>({0, 0, 1, 2}) = 0.6 + 0.1 * 0.1 * 0.6 / 0.9;
  weights.at<double>({0, 0, 1, 4}) = 0.3 + 0.1 * 0.1 * 0.3 / 0.9;
  weights.at<double>({0, 0, 1, 0}) = 0.09;
  EXPECT_NEAR(wishes.loss(weights), 0.0, 1e-15);
  EXPECT_EQ(wishes.met(weights), 2);
  weights.at<double>({0, 0, 1, 4}) = 0.2999;
  EXPECT_GT(wishes.loss(weights), 0.0);
  EXPECT_EQ(wishes.met(weights), 1);
}

TEST(TrainScene, StopsAfterTheGivenSteps) {
  const Scene scene = scene_with(kScenes[0]);
  const Learned few = learn_scene(scene, {.steps = 3});
  EXPECT_EQ(few.end, LearnEnd::kOutOfSteps);
  EXPECT_EQ(few.steps, 3);
  EXPECT_FALSE(few.wishes[0].met);
  EXPECT_EQ(few.losses.size(), 4U);

  std::vector<LearnProgress> seen;
  const Learned stopped = learn_scene(scene, {.progress = [&](const LearnProgress& at) {
                                        seen.push_back(at);
                                        return at.steps < 3;
                                      }});
  EXPECT_EQ(stopped.end, LearnEnd::kStopped);
  EXPECT_EQ(stopped.steps, 3);
  EXPECT_EQ(stopped.scene.json, few.scene.json);
  ASSERT_EQ(seen.size(), 4U);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].steps, static_cast<std::int64_t>(i));
    EXPECT_EQ(seen[i].loss, few.losses[i]);
  }
}

TEST(TrainScene, ReportsNonfiniteLosses) {
  const Scene scene = scene_with(kScenes[0]);
  const Learned diverged = learn_scene(scene, {.learning_rate = 1e200});
  EXPECT_EQ(diverged.end, LearnEnd::kNotFinite);
  EXPECT_EQ(diverged.steps, 1);
  EXPECT_FALSE(std::isfinite(diverged.losses.back()));
  for (const double number : diverged.scene.projections->query.span<double>()) {
    EXPECT_TRUE(number == 0.0 || number == 1.0);  // the step is undone, back to the identity
  }
  // Softcap keeps scores finite, however large the weights are.
  const Learned capped =
      learn_scene(scene_with(kDrawn + R"(, "score": {"softcap": 1}, "learn": {"be": {"or": 0.9}})"),
                  {.learning_rate = 1.7e308});
  EXPECT_EQ(capped.end, LearnEnd::kNotFinite);

  const Learned hopeless = learn_scene(parse_scene(
      R"({"text": "a b", "embeddings": [[1e200], [1e200]], "learn": {"a": {"b": 0.9}}})"));
  EXPECT_EQ(hopeless.end, LearnEnd::kNotFinite);
  EXPECT_EQ(hopeless.steps, 0);
}

TEST(TrainScene, EqualWordsCannotBeDistinguished) {
  const Learned learned = learn_scene(
      parse_scene(
          R"({"text": "a b b", "embeddings": [[1, 0], [0, 1], [0, 1]], "learn": {"a": {"@1": 0.9}}})"),
      {.steps = 100});
  EXPECT_EQ(learned.end, LearnEnd::kOutOfSteps);
  EXPECT_LE(learned.wishes[0].after[0], 0.5);
}

TEST(TrainScene, InvalidScenesAndOptions) {
  const auto message = [](const std::string& members, const LearnOptions& options = {}) {
    return test::message_of([&] { learn_scene(scene_with(kDrawn + members), options); });
  };
  const std::string wish = R"(, "learn": {"be": {"think": 0.9}})";
  EXPECT_EQ(message(""), "learn: expected a wish for at least one query, got nothing");
  EXPECT_EQ(
      message(wish + R"(, "mask": "causal")"),
      "learn.be.think: expected a key that the query sees, got one that is masked: its weight "
      "is 0, whatever is learned");
  EXPECT_EQ(message(R"(, "learn": {"be": {"think": 0}}, "mask": "causal")"), "no error");
  EXPECT_EQ(
      message(wish + R"(, "score": {"bias": [0, 0, 0, 0, "-inf"]})"),
      "learn.be.think: expected a key that the query sees, got one that is masked: its weight "
      "is 0, whatever is learned");
  EXPECT_EQ(message(R"(, "learn": {"@0": {"@0": 0}}, "mask": "causal")"),
            "learn.@0.@0: expected another visible key, got none: the query sees no other");
  EXPECT_EQ(message(R"(, "learn": {"@0": {"@0": 0.5}}, "mask": "causal")"), "no error");
  EXPECT_EQ(message(wish + R"(, "score": {"kind": "general", "weights": {"draw": "randn"}})"),
            "score.kind: expected \"dot\", the only trainable score, with \"learn\", got another");
  EXPECT_EQ(message(wish + R"(, "normalizations": ["softmax", "sum"])"),
            "normalizations: expected \"softmax\" as the last one beside \"learn\", got another");
  EXPECT_EQ(message(wish, {.steps = -1}), "steps: expected a number from 0 on, got -1");
  EXPECT_EQ(message(wish, {.learning_rate = 0.0}),
            "learning_rate: expected a number above 0, got 0");
  EXPECT_THAT(message(wish, {.learning_rate = std::nan("")}), HasSubstr("got nan"));
  EXPECT_THAT(message(wish, {.seed = std::uint64_t{1} << 32}), HasSubstr("seed"));
  EXPECT_THAT(message(wish + R"(, "projections": {"query": {"draw": "rand", "dim": 1000},
                                  "key": {"draw": "rand", "dim": 1000},
                                  "value": {"draw": "randint", "high": 9, "dim": 4000}})"),
              HasSubstr("no error"));
  const std::string wide = test::message_of([&] {
    learn_scene(parse_scene(
        R"({"text": "a b", "seed": 1, "embeddings": {"draw": "rand", "dim": 512},
            "projections": {"draw": "rand"}, "learn": {"a": {"b": 0.9}}})"));
  });
  EXPECT_THAT(wide, HasSubstr("projections: expected at most 645"));
  EXPECT_THAT(wide, HasSubstr("numbers, for a scene that can be written when it has learned, got "
                              "786432"));
}

/// Wishes can be set in code instead of in a file.
TEST(TrainScene, WishesCanBeSetInCode) {
  Scene scene = scene_with(kDrawn);
  scene.learn = {{.query = 1, .key = 2, .weight = 0.9, .place = "a wish"}};
  set_focus(scene, "be");
  const Learned learned = learn_scene(scene);
  EXPECT_EQ(learned.end, LearnEnd::kReached);
  const Trace trace = trace_scene(learned.scene);
  EXPECT_GE(weights_of(trace).at<double>({1, 2}), 0.9);
  EXPECT_EQ(trace.find("focus.weights")->values.at<double>({2}), learned.wishes[0].after[0]);

  const auto message = [&](const scene::Wish& wish) {
    scene.learn = {wish};
    return test::message_of([&] { learn_scene(scene); });
  };
  EXPECT_EQ(
      message({.query = 5, .key = 0}),
      "scene: expected a wish within 1 batch items of 5 queries and 5 keys, got item 0, query "
      "5, key 0");
  EXPECT_THAT(message({.item = 1}), HasSubstr("got item 1, query 0, key 0"));
  EXPECT_THAT(message({.key = -1}), HasSubstr("got item 0, query 0, key -1"));
  EXPECT_EQ(message({.weight = 1.5}), "scene: expected a wish for a weight from 0 to 1, got 1.5");
}

/// The JSON keeps the author's members in order, except those that depend on the old weights.
TEST(TrainScene, JsonKeepsTheAuthorsMembersWithNewWeights) {
  const Scene scene = parse_scene(
      R"({"title": "T \u00e9 \"q\"", "tokens": ["a", "b"], "embeddings": [[1, 0.5], [0, 1]],
          "seed": 9, "score": {"scale": 2, "bias": [[0, "-inf"], [1, 0]]}, "notes": {"scene": "n"},
          "expect": [{"step": "tokens", "values": ["a", "b"]}], "learn": {"b": {"a": 0.25}}})");
  scene::Projections projections;
  projections.query = Tensor::matrix({{0.1, 1e-300}, {-1.0 / 3, 2}});
  projections.key = Tensor::matrix({{1, 2}, {3, 4}});
  projections.value = Tensor::matrix({{1}, {0}});
  const Scene changed = with_projections(scene, projections);
  EXPECT_EQ(changed.json, R"({
  "title": "T é \"q\"",
  "tokens": ["a", "b"],
  "embeddings": [
    [1, 0.5],
    [0, 1]
  ],
  "projections": {
    "query": [
      [0.1, 1e-300],
      [-0.3333333333333333, 2.0]
    ],
    "key": [
      [1.0, 2.0],
      [3.0, 4.0]
    ],
    "value": [
      [1.0],
      [0.0]
    ]
  },
  "seed": 9,
  "score": {
    "scale": 2,
    "bias": [
      [0, "-inf"],
      [1, 0]
    ]
  },
  "notes": {"scene": "n"},
  "learn": {"b": {"a": 0.25}}
}
)");
  EXPECT_TRUE(changed.expect.empty());
  EXPECT_EQ(with_projections(changed, projections).json, changed.json);

  projections.key.at<double>({1, 0}) = std::nan("");
  EXPECT_EQ(test::message_of([&] { with_projections(scene, projections); }),
            "projections.key[1][0]: expected a finite number, got nan");
  EXPECT_EQ(test::message_of([&] { with_projections(Scene(), projections); }),
            "scene: expected the JSON that it was read from, got none");
}

}  // namespace
}  // namespace fovea::train
