// SPDX-License-Identifier: Apache-2.0
//
// The steps of a trace: their names, order and shapes; and their JSON.

#include <algorithm>
#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fovea/error.h"
#include "fovea/random.h"
#include "fovea/scene.h"

#include "support/random_problem.h"

namespace fovea::scene {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

Trace trace_of(const std::string& text) { return trace_scene(parse_scene(text)); }

std::vector<std::string> names(const Trace& trace) {
  std::vector<std::string> result;
  for (const Step& step : trace.steps) result.push_back(step.name);
  return result;
}

Shape shape_of(const Trace& trace, const std::string& name) {
  const Step* step = trace.find(name);
  EXPECT_NE(step, nullptr) << name;
  return step == nullptr ? Shape() : step->shape;
}

constexpr const char* kTwoWords = R"("tokens": ["a", "b"], "embeddings": [[1, 2], [3, 4]])";

TEST(Trace, TheSimplestScene) {
  const Trace trace = trace_of(std::string("{") + kTwoWords + R"(, "score": {"scale": 1}})");
  EXPECT_THAT(
      names(trace),
      ElementsAre("tokens", "embeddings", "focus.tokens", "focus.embeddings", "focus.scores",
                  "focus.shifted_scores", "focus.exponentials", "focus.exponential_sums",
                  "focus.weights", "focus.row_sums", "focus.context", "scores", "shifted_scores",
                  "exponentials", "exponential_sums", "weights", "row_sums", "context"));
  EXPECT_EQ(shape_of(trace, "focus.scores"), (Shape{2}));
  EXPECT_EQ(shape_of(trace, "focus.row_sums"), Shape());
  EXPECT_EQ(shape_of(trace, "context"), (Shape{2, 2}));
  EXPECT_EQ(trace.find("scores")->values.value({1, 0}), 11.0);
  EXPECT_EQ(trace.find("nothing"), nullptr);
}

TEST(Trace, EveryPossibleStep) {
  const Trace trace = trace_of(R"({
    "tokens": ["a", "b"], "embeddings": [[1, 2], [3, 4]], "seed": 3,
    "source": {"tokens": ["x", "y", "z"], "embeddings": [[1], [2], [3]]},
    "projections": {"draw": "randn", "dim": 4}, "heads": 2,
    "score": {"kind": "additive", "scale": 2, "softcap": 3, "bias": [0.5],
              "query_weights": {"draw": "rand", "dim": 5},
              "key_weights": {"draw": "rand"}, "v": {"draw": "rand"}},
    "mask": "causal", "normalizations": ["softmax_unshifted", "sum", "softmax"]})");
  EXPECT_THAT(
      names(trace),
      ElementsAre(
          "tokens", "embeddings", "source_tokens", "source_embeddings", "query_weights",
          "key_weights", "value_weights", "query", "key", "value", "focus.tokens",
          "focus.embeddings", "focus.query", "focus.hidden", "focus.scores", "focus.scaled_scores",
          "focus.softcapped_scores", "focus.biased_scores", "focus.masked_scores",
          "focus.exponentials[softmax_unshifted]", "focus.exponential_sums[softmax_unshifted]",
          "focus.weights[softmax_unshifted]", "focus.row_sums[softmax_unshifted]",
          "focus.weights[sum]", "focus.row_sums[sum]", "focus.shifted_scores", "focus.exponentials",
          "focus.exponential_sums", "focus.weights", "focus.row_sums", "focus.context",
          "focus.merged_context", "hidden", "scores", "scaled_scores", "softcapped_scores",
          "biased_scores", "masked_scores", "exponentials[softmax_unshifted]",
          "exponential_sums[softmax_unshifted]", "weights[softmax_unshifted]",
          "row_sums[softmax_unshifted]", "weights[sum]", "row_sums[sum]", "shifted_scores",
          "exponentials", "exponential_sums", "weights", "row_sums", "context", "merged_context"));
  EXPECT_EQ(shape_of(trace, "query_weights"), (Shape{2, 4}));
  EXPECT_EQ(shape_of(trace, "key_weights"), (Shape{1, 4}));
  EXPECT_EQ(shape_of(trace, "query"), (Shape{2, 2, 2}));
  EXPECT_EQ(shape_of(trace, "key"), (Shape{2, 3, 2}));
  EXPECT_EQ(shape_of(trace, "hidden"), (Shape{2, 2, 3, 5}));
  EXPECT_EQ(shape_of(trace, "focus.hidden"), (Shape{2, 3, 5}));
  EXPECT_EQ(shape_of(trace, "focus.weights"), (Shape{2, 3}));
  EXPECT_EQ(shape_of(trace, "merged_context"), (Shape{2, 4}));
  EXPECT_EQ(shape_of(trace, "focus.merged_context"), (Shape{4}));
}

TEST(Trace, AFocusStepIsARowOfTheWhole) {
  const Trace trace = trace_of(R"({
    "tokens": [["a", "b", "c"], ["d", "e", "f"]], "seed": 8, "focus": "e", "heads": 2,
    "embeddings": {"draw": "randn", "dim": 4}, "projections": {"draw": "randn"},
    "mask": {"key_lengths": [2, 3]}})");
  EXPECT_EQ(*trace.scene.focus, (Focus{1, 1}));
  for (const char* name : {"scores", "scaled_scores", "masked_scores", "weights", "context",
                           "query", "key", "value"}) {
    const TensorView whole = trace.find(name)->values.view()[1];  // [heads, length, ...]
    const TensorView focus = trace.find(std::string("focus.") + name)->values;
    for (std::int64_t head = 0; head < 2; ++head) {
      EXPECT_EQ(test::max_difference(focus[head], whole[head][1]), 0.0) << name;
    }
  }
  EXPECT_EQ(shape_of(trace, "embeddings"), (Shape{2, 3, 4}));
  EXPECT_EQ(shape_of(trace, "query_weights"), (Shape{4, 4}));
  EXPECT_EQ(shape_of(trace, "weights"), (Shape{2, 2, 3, 3}));
  EXPECT_EQ(shape_of(trace, "tokens"), (Shape{2, 3}));
}

TEST(Trace, ABatchOfOneKeepsItsDimension) {
  const Trace trace = trace_of(R"({"tokens": ["a", "b"], "embeddings": [[[1, 2], [3, 4]]]})");
  EXPECT_EQ(shape_of(trace, "embeddings"), (Shape{1, 2, 2}));
  EXPECT_EQ(shape_of(trace, "weights"), (Shape{1, 2, 2}));
  EXPECT_EQ(shape_of(trace, "focus.weights"), (Shape{2}));
}

TEST(Trace, NoFocusStepsWithoutFocus) {
  const Trace trace = trace_of(std::string("{") + kTwoWords + R"(, "focus": null})");
  EXPECT_TRUE(std::none_of(trace.steps.begin(), trace.steps.end(),
                           [](const Step& step) { return step.name.starts_with("focus."); }));
  EXPECT_EQ(json::parse(to_json(trace))["focus"], nullptr);
}

TEST(Trace, RandomNumbersComeFromOneStreamInOrder) {
  const Trace trace = trace_of(R"({
    "tokens": ["a", "b"], "embeddings": {"draw": "rand", "dim": 3}, "seed": 42,
    "source": {"tokens": ["x"], "embeddings": {"draw": "randn", "dim": 2}},
    "projections": {"draw": "randint", "low": -2, "high": 5, "dim": 4, "value_dim": 1},
    "score": {"kind": "general", "weights": {"draw": "rand"}}})");
  RandomState random(42);
  const auto same = [&](const char* step, const Tensor& expected) {
    EXPECT_EQ(test::max_difference(trace.find(step)->values, expected), 0.0) << step;
  };
  same("embeddings", random.rand({2, 3}));
  same("source_embeddings", random.randn({1, 2}));
  same("query_weights", convert(random.randint(-2, 5, {3, 4}), DType::kFloat64));
  same("key_weights", convert(random.randint(-2, 5, {2, 4}), DType::kFloat64));
  same("value_weights", convert(random.randint(-2, 5, {2, 1}), DType::kFloat64));
  const auto& general = std::get<reference::GeneralScore>(trace.scene.score_kind);
  EXPECT_EQ(test::max_difference(general.weights, random.rand({4, 4})), 0.0);
}

TEST(Trace, MaskRulesCombineAsDocumented) {
  const auto mask = [](const std::string& rules) {
    return parse_scene(
               "{\"text\": \"a b c d\", \"seed\": 1, \"embeddings\": {\"draw\": \"rand\", "
               "\"dim\": 1}, \"mask\": " +
               rules + "}")
        .options.mask.to_string();
  };
  EXPECT_EQ(mask("\"none\""), "all");
  EXPECT_EQ(mask("{\"causal\": false}"), "all");
  EXPECT_EQ(mask("{\"prefix\": 2}"), "prefix(2)");
  EXPECT_EQ(mask("{\"causal\": true, \"prefix\": 2, \"window\": [1, -1], \"key_lengths\": 3}"),
            "(causal() | prefix(2)) & window(1, -1) & key_lengths(3)");
  EXPECT_EQ(mask("{\"any\": [\"causal\", {\"documents\": [0, 0, 1, 1]}]}"),
            "(causal() | documents(ids))");
  EXPECT_EQ(mask("{\"all\": [\"causal\", {\"dense\": [[true, true, false, true]]}]}"),
            "causal() & dense([1, 4])");
}

TEST(Trace, Float32IsComputedInFloat32) {
  const std::string body = R"({"text": "a b c", "seed": 5, "embeddings": {"draw": "randn",
                              "dim": 3})";
  const Trace narrow = trace_of(body + R"(, "dtype": "float32"})");
  const Trace wide = trace_of(body + "}");
  EXPECT_EQ(narrow.find("weights")->values.dtype(), DType::kFloat32);
  const double difference =
      test::max_difference(narrow.find("weights")->values, wide.find("weights")->values);
  EXPECT_GT(difference, 0.0);
  EXPECT_LT(difference, 1e-6);
}

TEST(Trace, CopiedSceneOutlivesTheOriginal) {
  auto original = std::make_unique<Scene>(parse_scene(
      std::string("{") + kTwoWords + R"(, "score": {"bias": [[0.5, -0.5]]}, "focus": null})"));
  const Scene copy = *original;
  const Trace before = trace_scene(*original);
  original.reset();
  EXPECT_EQ(test::max_difference(trace_scene(copy).find("weights")->values,
                                 before.find("weights")->values),
            0.0);
}

TEST(Trace, ScenesBuiltInCodeAreValidated) {
  const auto message_after = [](auto change) -> std::string {
    Scene scene = parse_scene(
        R"({"tokens": ["a", "b"], "seed": 1, "embeddings": {"draw": "rand", "dim": 4},
            "projections": {"draw": "rand"}, "heads": 2})");
    change(scene);
    try {
      trace_scene(scene);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message_after([](Scene&) {}), "no error");
  EXPECT_EQ(message_after([](Scene& s) { s = Scene(); }),
            "scene: expected at least one token in words, got none");
  EXPECT_EQ(message_after([](Scene& s) { s.kv_heads = 0; }),
            "scene: expected heads to be a positive multiple of kv_heads, got 2 and 0");
  EXPECT_EQ(message_after([](Scene& s) { s.heads = s.kv_heads = 3; }),
            "scene: expected query columns that 3 heads can share, got 4");
  EXPECT_EQ(message_after([](Scene& s) { s.projections.reset(), s.heads = s.kv_heads = 3; }),
            "scene: expected query columns that 3 heads can share, got 4");
  EXPECT_EQ(message_after([](Scene& s) {
              s.focus = Focus{0, 2};
            }),
            "scene: expected a focus within 1 batch items of 2 tokens, got [0, 2]");
  EXPECT_EQ(message_after([](Scene& s) { s.normalizations.clear(); }),
            "scene: expected at least one normalization, got none");
  EXPECT_EQ(message_after([](Scene& s) { s.words.tokens[0].push_back("c"); }),
            "scene: expected float64 embeddings of the words [1, 3, dim], got [1, 2, 4]");
  EXPECT_EQ(message_after([](Scene& s) { s.words.tokens.push_back({"c"}); }),
            "scene: expected 2 tokens in every batch item of words, got 1");
  EXPECT_EQ(message_after([](Scene& s) { s.projections->key = Tensor(); }),
            "scene: expected float64 key weights [4, columns], got none");
  EXPECT_EQ(message_after([](Scene& s) { s.source = Sequence(); }),
            "scene: expected at least one token in source, got none");
  EXPECT_EQ(message_after([](Scene& s) { s.precision = -1; }),
            "scene: expected a precision from 0 to 17, got -1");
}

// ---- The parts of softmax -----------------------------------------------------------------------

/// Expects that every weight is its exponential divided by the sum of its row, bit for bit.
template <class Real>
void expect_weights_are_quotients(const Trace& trace, const std::string& suffix) {
  const Tensor& weights = trace.find("weights" + suffix)->values;
  const Tensor& exponentials = trace.find("exponentials" + suffix)->values;
  const Tensor& sums = trace.find("exponential_sums" + suffix)->values;
  ASSERT_EQ(weights.dtype(), dtype_of<Real>());
  ASSERT_EQ(exponentials.shape(), weights.shape());
  const std::int64_t keys = weights.extent(weights.rank() - 1);
  ASSERT_EQ(sums.size() * keys, weights.size());
  for (std::size_t i = 0; i < weights.span<Real>().size(); ++i) {
    const Real sum = sums.span<Real>()[i / static_cast<std::size_t>(keys)];
    const Real weight = weights.span<Real>()[i];
    const Real expected = exponentials.span<Real>()[i] / sum;
    if (std::isnan(weight)) {
      EXPECT_TRUE(std::isnan(expected)) << suffix << i;
    } else {
      EXPECT_EQ(weight, expected) << suffix << i;
    }
  }
}

TEST(SoftmaxParts, WeightsAreTheQuotientsBitForBit) {
  for (const char* dtype : {"float64", "float32"}) {
    for (const char* options :
         {"", R"("mask": "causal", )", R"("score": {"sinks": [0.5, -2], "scale": 40}, )",
          R"("score": {"scale": 300, "softcap": 200}, "mask": {"window": [1, 0]}, )"}) {
      const Trace trace = trace_of(std::string("{") + options + R"("dtype": ")" + dtype + R"(",
          "text": "a b c d e", "seed": 5, "embeddings": {"draw": "randn", "dim": 4}, "heads": 2,
          "normalizations": ["softmax_unshifted", "softmax"]})");
      for (const char* suffix : {"", "[softmax_unshifted]"}) {
        if (trace.scene.arithmetic == DType::kFloat32) {
          expect_weights_are_quotients<float>(trace, suffix);
        } else {
          expect_weights_are_quotients<double>(trace, suffix);
        }
      }
    }
  }
}

TEST(SoftmaxParts, AreRowsOfTheFocusToo) {
  const Trace trace = trace_of(R"({
    "tokens": ["a", "b", "c"], "embeddings": [[1], [2], [3]], "focus": "b",
    "score": {"scale": 1}, "normalizations": ["softmax", "sum"]})");
  EXPECT_EQ(trace.find("shifted_scores"), nullptr);  // "sum", the last one, has no exponential
  EXPECT_EQ(trace.find("exponentials[sum]"), nullptr);
  const Tensor& shifted = trace.find("focus.shifted_scores[softmax]")->values;
  EXPECT_EQ(shifted.shape(), (Shape{3}));
  EXPECT_EQ(shifted.value({0}), -4.0);
  EXPECT_EQ(shifted.value({2}), 0.0);
  EXPECT_EQ(trace.find("focus.exponentials[softmax]")->values.value({1}), std::exp(-2.0));
  EXPECT_EQ(trace.find("focus.exponential_sums[softmax]")->values.value({}),
            std::exp(-4.0) + std::exp(-2.0) + 1.0);
  EXPECT_EQ(trace.find("exponentials[softmax]")->formula, "exp(score[j] - max)");
}

TEST(SoftmaxParts, MaskedKeysAndRowsWithoutKeys) {
  const Trace trace = trace_of(R"({"tokens": ["a", "b"], "embeddings": [[3], [3]],
    "mask": "causal", "alignment": -1, "normalizations": ["softmax_unshifted", "softmax"]})");
  for (const char* suffix : {"", "[softmax_unshifted]"}) {
    const Tensor& exponentials = trace.find(std::string("exponentials") + suffix)->values;
    EXPECT_EQ(exponentials.value({0, 0}), 0.0);
    EXPECT_EQ(exponentials.value({1, 1}), 0.0);
    EXPECT_EQ(trace.find(std::string("exponential_sums") + suffix)->values.value({0}), 0.0);
  }
  const Tensor& shifted = trace.find("shifted_scores")->values;
  EXPECT_EQ(shifted.value({0, 0}), -HUGE_VAL);
  EXPECT_EQ(shifted.value({1, 0}), 0.0);
  EXPECT_EQ(shifted.value({1, 1}), -HUGE_VAL);
  EXPECT_EQ(trace.find("exponentials")->values.value({1, 0}), 1.0);
  EXPECT_EQ(trace.find("exponentials[softmax_unshifted]")->values.value({1, 0}), std::exp(9.0));
}

TEST(SoftmaxParts, MaximumAndSumIncludeTheSink) {
  const Trace trace = trace_of(R"({"tokens": ["a", "b"], "embeddings": [[1], [2]],
    "score": {"sinks": [3]}, "mask": {"dense": [[true, true], [false, false]]}})");
  const Tensor& sums = trace.find("exponential_sums")->values;
  EXPECT_EQ(trace.find("shifted_scores")->values.value({0, 1}), 2.0 - 3.0);
  EXPECT_EQ(sums.value({0}), std::exp(-2.0) + std::exp(-1.0) + 1.0);
  EXPECT_EQ(sums.value({1}), 1.0);  // no visible key: only the sink
}

TEST(SoftmaxParts, NaiveExponentialsOverflow) {
  const Trace trace = trace_of(R"({"tokens": ["a", "b"], "embeddings": [[30], [1]],
    "normalizations": ["softmax_unshifted", "softmax"], "score": {"scale": 1}})");
  EXPECT_EQ(trace.find("exponentials[softmax_unshifted]")->values.value({0, 0}), HUGE_VAL);
  EXPECT_EQ(trace.find("exponentials[softmax_unshifted]")->values.value({0, 1}), std::exp(30.0));
  EXPECT_EQ(trace.find("exponential_sums[softmax_unshifted]")->values.value({0}), HUGE_VAL);
  EXPECT_EQ(trace.find("exponentials")->values.value({0, 1}), std::exp(30.0 - 900.0));
  EXPECT_EQ(trace.find("exponential_sums")->values.value({0}), 1.0 + std::exp(30.0 - 900.0));
}

TEST(SoftmaxParts, CanBeExpected) {
  const Trace trace = trace_of(R"({"tokens": ["a", "b"], "embeddings": [[1], [2]],
    "expect": [{"step": "shifted_scores", "values": [[-1, 0], [-2, 0]]},
               {"step": "focus.exponential_sums", "values": 1.3679, "digits": 4}]})");
  EXPECT_TRUE(trace.passed());
  EXPECT_THROW(trace_of(R"({"tokens": ["a"], "embeddings": [[1]],
    "expect": [{"step": "exponentials[sum]", "values": [[1]]}]})"),
               InvalidArgument);
}

// ---- JSON ---------------------------------------------------------------------------------------

TEST(TraceJson, HasTheDocumentedShape) {
  const Trace trace =
      trace_of(std::string("{\"title\": \"T\", ") + kTwoWords +
               R"(, "expect": [{"step": "scores", "index": 0, "values": [5, 11]}]})");
  const json out = json::parse(to_json(trace));
  std::vector<std::string> keys;
  for (const auto& [key, value] : out.items()) keys.push_back(key);
  EXPECT_THAT(keys, UnorderedElementsAre("title", "tokens", "focus", "steps", "checks"));
  EXPECT_EQ(out["title"], "T");
  EXPECT_EQ(out["tokens"], json({"a", "b"}));
  EXPECT_EQ(out["focus"], 0);
  for (const json& step : out["steps"]) {
    for (const char* key : {"name", "title", "formula", "shape", "values"}) {
      EXPECT_TRUE(step.contains(key)) << key;
    }
  }
  EXPECT_EQ(out["steps"][1]["values"], json::parse("[[1, 2], [3, 4]]"));
  EXPECT_EQ(out["checks"][0]["passed"], true);
}

TEST(TraceJson, NumbersReadBackExactly) {
  for (const char* dtype : {"float64", "float32"}) {
    const Trace trace = trace_of(
        std::string(R"({"text": "a b c", "seed": 5, "embeddings": {"draw": "randn", "dim": 3},
                        "dtype": ")") +
        dtype + "\"}");
    const json out = json::parse(to_json(trace));
    const Tensor& weights = trace.find("weights")->values;
    const auto found = std::find_if(out["steps"].begin(), out["steps"].end(),
                                    [](const json& step) { return step["name"] == "weights"; });
    for_each_index(weights.shape(), [&](const Index& at) {
      const json& value =
          (*found)["values"][static_cast<std::size_t>(at[0])][static_cast<std::size_t>(at[1])];
      if (weights.dtype() == DType::kFloat32) {
        EXPECT_EQ(value.get<float>(), weights.at<float>(at));
      } else {
        EXPECT_EQ(value.get<double>(), weights.at<double>(at));
      }
    });
  }
}

TEST(TraceJson, NonfiniteNumbersAreStrings) {
  const Trace trace = trace_of(R"({"tokens": ["a", "b"], "embeddings": [[900], [30]],
                                   "mask": "causal", "normalizations": ["softmax_unshifted"]})");
  const json out = json::parse(to_json(trace));
  const auto values = [&](const std::string& name) {
    for (const json& step : out["steps"]) {
      if (step["name"] == name) return step["values"];
    }
    return json();
  };
  EXPECT_EQ(values("masked_scores")[0][1], "-inf");
  EXPECT_EQ(values("weights")[0][0], "nan");
}

TEST(TraceJson, ControlCharactersAreEscaped) {
  const std::string out = to_json(trace_of(
      "{\"title\": \"\u009b31m\u007f\u202e\u2028 猫 é\", \"tokens\": [\"a\u009b2J\\u001b\"], "
      "\"embeddings\": [[1]]}"));
  for (const char* raw : {"\u009b", "\u007f", "\u202e", "\u2028", "\x1b"}) {
    EXPECT_EQ(out.find(raw), std::string::npos) << raw;
  }
  EXPECT_NE(out.find("猫 é"), std::string::npos);
  EXPECT_EQ(json::parse(out)["title"], "\u009b31m\u007f\u202e\u2028 猫 é");
  EXPECT_EQ(json::parse(out)["tokens"][0], "a\u009b2J\x1b");
}

TEST(TraceJson, TokensKeepTheirKindAndNesting) {
  const json numbers =
      json::parse(to_json(trace_of(R"({"tokens": [72, -3], "embeddings": [[1], [2]]})")));
  EXPECT_EQ(numbers["tokens"], json({72, -3}));
  const json batch = json::parse(to_json(
      trace_of(R"({"tokens": [["a", "b"], ["c", "\"d\""]], "embeddings": [[[1], [2]], [[3], [4]]],
                   "focus": [1, 0]})")));
  EXPECT_EQ(batch["tokens"], json::parse(R"([["a", "b"], ["c", "\"d\""]])"));
  EXPECT_EQ(batch["focus"], 0);
  EXPECT_EQ(batch["focus_item"], 1);
}

}  // namespace
}  // namespace fovea::scene
